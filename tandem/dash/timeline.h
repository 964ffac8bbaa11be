// One step's commands over time, a lane for each stream of each rank, out of a trace that `tandem profile`
// has written into the run's directory as trace.json.
#pragma once

#include <nlohmann/json.hpp>

namespace tandem::dash {

// {total_us, lanes: [name], kernels: [name], spans: [[lane, start_us, duration_us, kernel, executable,
// block]]} of the last whole step; `executable` is an index into executables: [name]. Null where it is no
// such trace.
nlohmann::ordered_json timeline(const nlohmann::json& trace);

}  // namespace tandem::dash
