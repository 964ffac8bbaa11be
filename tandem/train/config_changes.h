// What of a config may differ from the one a checkpoint was made with. One table says it of every key, so
// that a new key is not free to change by accident; a test finds one that is not in it.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/checkpoint/manifest.h"
#include "tandem/config/config.h"

namespace tandem {

enum class Changeable {
  Never,       // the weights would compute something else
  NotResumed,  // the optimizer's state would be another's; the weights alone can still be used
  Reordered,   // a position in the data means other samples then: allowed, with a warning
  Freely,
};

struct KeyRule {
  std::string_view key;
  Changeable changeable;
};
std::span<const KeyRule> key_rules();

struct ConfigChange {
  std::string_view key;
  Changeable changeable;
  nlohmann::json before, after;

  std::string text() const;  // "train.lr 0.001 -> 0.01"
};

// Every key whose value has changed since the checkpoint, in the order of the keys. A key that the checkpoint
// does not know (it is older) has not changed.
std::vector<ConfigChange> config_changes(const CheckpointMeta& meta, const Config& config);

// Whether losses of evaluations before it are of something else than those after it.
bool changes_evaluations(const ConfigChange& change);

// Throw DataError naming the key, both values and what to do. For training that goes on, and for a use of
// the weights alone.
void require_resumable(const Manifest& manifest, const Config& config);
void require_same_function(const Manifest& manifest, const Config& config);

}  // namespace tandem
