// Some samples of a set, one behind the other, as a set of their own: one of those that a mixture holds.
#pragma once

#include "tandem/data/dataset.h"

namespace tandem {

class DatasetSlice final : public Dataset {
 public:
  // `whole` outlives it.
  DatasetSlice(const Dataset& whole, int64_t first, int64_t count)
      : whole_(whole), first_(first), count_(count) {}

  SampleSpec spec() const override { return whole_.spec(); }
  int64_t num_samples() const override { return count_; }
  void fill(int64_t index, const SampleBuffers& out) const override { whole_.fill(first_ + index, out); }
  int64_t num_valid_targets(int64_t index) const override { return whole_.num_valid_targets(first_ + index); }
  bool is_in_order() const override { return whole_.is_in_order(); }
  int64_t num_left_out() const override { return whole_.num_left_out(); }
  void expect(int64_t index) const override { whole_.expect(first_ + index); }

 private:
  const Dataset& whole_;
  int64_t first_, count_;
};

}  // namespace tandem
