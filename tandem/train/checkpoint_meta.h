// What a checkpoint keeps of a run beside its tensors: where it stands in steps and data, and the counters
// that steps depend on. Both directions, so that what one writes the other reads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tandem/checkpoint/manifest.h"
#include "tandem/config/config.h"
#include "tandem/data/loader.h"
#include "tandem/metrics/step_record.h"
#include "tandem/train/config_changes.h"
#include "tandem/train/step_runner.h"

namespace tandem {

// After the step of `last`.
CheckpointMeta checkpoint_meta(const Config& config, const MeshShape& mesh, const StepRecord& last,
                               const StepRunner& runner, const Loader& loader,
                               const std::string& data_fingerprint);

// Sets runner and loader to where the checkpoint was made; returns what it knows of its last step.
StepRecord restore_meta(const CheckpointMeta& meta, const Config& config, StepRunner& runner, Loader& loader);

// A position in the data means the same samples only in the same order of the same set: a sentence for each
// key that has changed since, or for samples that have.
std::vector<std::string> changes_of_data(const CheckpointMeta& meta, std::span<const ConfigChange> changes,
                                         const Config& config, const std::string& data_fingerprint);

}  // namespace tandem
