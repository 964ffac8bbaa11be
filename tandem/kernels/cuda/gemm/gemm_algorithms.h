// Finds the fastest of several ways to do the same work on a queue, by trying them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <optional>

namespace tandem::cuda {

// `run(i)` puts alternative i into the queue, or answers false where it cannot. Waits for the queue. Takes a
// few dozen milliseconds of the device at most; among alternatives within 1% of the fastest the first is
// taken, so that noise seldom decides. Nothing where none could be run.
std::optional<size_t> fastest(size_t num_alternatives, const std::function<bool(size_t)>& run,
                              cudaStream_t queue);

}  // namespace tandem::cuda
