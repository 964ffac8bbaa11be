// A loop whose turns are long and may throw, on a few threads.
#pragma once

#include <cstddef>
#include <functional>

namespace tandem::plan {

// do_one(i) for i in [begin, end), each once. Where some throw, the error of the first of them comes out,
// when all that were begun are done.
void for_each_in_threads(size_t begin, size_t end, int threads, const std::function<void(size_t)>& do_one);

}  // namespace tandem::plan
