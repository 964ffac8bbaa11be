// The sinks of a run, by the keys of the config's section log.
#pragma once

#include <memory>
#include <vector>

#include "tandem/config/config.h"
#include "tandem/metrics/sink.h"

namespace tandem {

// Before anything of the run is there. Throws ConfigError where a sink lacks what it needs to begin.
void check_sinks(const LogConfig& log);

std::vector<std::unique_ptr<Sink>> make_sinks(const LogConfig& log, const SinkOptions& options);

}  // namespace tandem
