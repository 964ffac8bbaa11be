// The data of a run as its config describes it.
#pragma once

#include <memory>

#include "tandem/base/mesh.h"
#include "tandem/config/load.h"
#include "tandem/data/dataset.h"
#include "tandem/data/loader.h"
#include "tandem/metrics/step_record.h"
#include "tandem/store/storage_options.h"

namespace tandem {

StorageOptions storage_options(const Config& config);  // as its keys say
SampleSpec sample_spec(const Config& config);          // what its model takes

// For a rank: its share of every global batch.
LoaderOptions train_loader_options(const Config& config, const MeshPosition& at = {});
LoaderOptions eval_loader_options(const Config& config, const MeshPosition& at = {});

CountedIn unit_of(const ModelConfig& model);  // of what it trains on

// Whether `set` is a text file that both data.train and data.eval name: its end is kept for evaluation then.
bool keeps_end_apart(const DataConfig& data, const std::string& set);
bool keeps_ends_apart(const DataConfig& data);  // of any of its sets
// Whether both data.train and data.eval name it, whatever it is.
bool names_on_both_sides(const DataConfig& data, const std::string& set);

std::unique_ptr<Dataset> open_run_data(const Config& config, Split split);

// Derives train.steps where train.epochs is given: only who opens the data can tell.
void resolve_epochs(ResolvedConfig& resolved);

}  // namespace tandem
