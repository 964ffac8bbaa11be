// Heads are read from storage in short rows far apart, which the hardware's prefetchers do not follow. So the
// softmax of a block, a row at a time, asks for the rows that the next block will pack or this one will
// write.
#pragma once

#include <cstdint>

namespace tandem::cpu::attention {

class RowPrefetch {
 public:
  template <typename S>
  void add(const S* first_row, int64_t row_elems, int64_t width) {
    lists_[num_lists_++] = {reinterpret_cast<const char*>(first_row), row_elems * int64_t{sizeof(S)},
                            width * int64_t{sizeof(S)}};
  }
  void clear() { num_lists_ = 0; }

  // Into the second-level cache: the first level belongs to the block at work.
  void fetch(int64_t row) const {
    for (int i = 0; i < num_lists_; ++i) {
      const char* begin = lists_[i].first_row + row * lists_[i].stride_bytes;
      for (int64_t byte = 0; byte < lists_[i].row_bytes; byte += 64) __builtin_prefetch(begin + byte, 0, 2);
    }
  }

 private:
  struct List {
    const char* first_row;
    int64_t stride_bytes;
    int64_t row_bytes;
  };
  List lists_[8];
  int num_lists_ = 0;
};

}  // namespace tandem::cpu::attention
