// The sinks of a run, by the keys of the config's section log.
#pragma once

#include <memory>
#include <vector>

#include "tandem/config/config.h"
#include "tandem/metrics/sink.h"

namespace tandem {

std::vector<std::unique_ptr<Sink>> make_sinks(const LogConfig& log, const SinkOptions& options);

}  // namespace tandem
