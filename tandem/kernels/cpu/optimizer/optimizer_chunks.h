// Many tensors cut into chunks of at most kOptimizerChunk elements, numbered through: the tasks of a
// multi-tensor kernel. The cut depends on the tensors' sizes only.
#pragma once

#include <algorithm>
#include <vector>

#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

inline constexpr int64_t kOptimizerChunk = 16384;

class OptimizerChunks {
 public:
  struct Chunk {
    size_t tensor;
    int64_t begin;
    int64_t elems;
  };

  static int64_t count(int64_t elems) { return (elems + kOptimizerChunk - 1) / kOptimizerChunk; }

  void add_tensor(int64_t elems) {
    elems_.push_back(elems);
    ends_.push_back(size() + count(elems));
  }
  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  Chunk operator[](int64_t chunk) const {
    const auto tensor =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), chunk) - ends_.begin());
    const int64_t first = tensor == 0 ? 0 : ends_[tensor - 1];
    const int64_t begin = (chunk - first) * kOptimizerChunk;
    return {tensor, begin, std::min(kOptimizerChunk, elems_[tensor] - begin)};
  }

 private:
  std::vector<int64_t> elems_;
  std::vector<int64_t> ends_;  // number of chunks up to and including each tensor
};

}  // namespace tandem::cpu
