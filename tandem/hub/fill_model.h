// model.from in a run's config: the keys of the model come from a directory's config.json.
#pragma once

#include <filesystem>

#include "tandem/config/load.h"

namespace tandem::hub {

// Sets every model key that the user did not give, "derived from model.from". One that was given and says
// otherwise than config.json is a ConfigError, but for model.context. Where the directory is gone, `kept` is
// read instead: a run's own copy. Does nothing where neither is there and the config has all keys itself, as
// one that a run has written.
void fill_model(ResolvedConfig& resolved, const std::filesystem::path& kept);

}  // namespace tandem::hub
