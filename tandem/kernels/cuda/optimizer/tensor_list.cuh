// Many tensors of any size in one launch: a list that travels by value in the kernel's parameters, cut into
// chunks of kChunkElems, one a block. The cut depends on the tensors' sizes only.
#pragma once

#include <cstdint>

#include "tandem/base/error.h"

namespace tandem::cuda {

inline constexpr int kChunkElems = 8192;
inline constexpr int kChunkThreads = 256;

inline int64_t num_chunks(int64_t elems) { return (elems + kChunkElems - 1) / kChunkElems; }

// Item has a member `elems`. Parameters of a kernel may take 32,764 bytes.
template <typename Item, int kRoom = 512>
struct TensorList {
  static constexpr int kCapacity = kRoom;

  int size = 0;
  int32_t ends[kCapacity];  // number of chunks up to and including each tensor
  Item items[kCapacity];

  bool full() const { return size == kCapacity; }
  int32_t num_blocks() const { return size == 0 ? 0 : ends[size - 1]; }
  void add(const Item& item) {
    const int64_t end = num_blocks() + num_chunks(item.elems);
    TANDEM_CHECK(end <= INT32_MAX, "{} chunks", end);
    items[size] = item;
    ends[size++] = static_cast<int32_t>(end);
  }
};

struct Chunk {
  int tensor;
  int index;      // of the chunk in its tensor
  int64_t begin;  // its first element
  int elems;
};

template <typename Item, int kRoom>
__device__ __forceinline__ Chunk chunk_of_block(const TensorList<Item, kRoom>& list) {
  const auto block = static_cast<int32_t>(blockIdx.x);
  int low = 0, high = list.size - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (list.ends[middle] > block) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const int index = block - (low == 0 ? 0 : list.ends[low - 1]);
  const int64_t begin = int64_t{index} * kChunkElems;
  const int64_t left = list.items[low].elems - begin;
  return {low, index, begin, static_cast<int>(left < kChunkElems ? left : kChunkElems)};
}

}  // namespace tandem::cuda
