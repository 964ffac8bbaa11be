// The steps that a sink's file holds, as they are found in it one after the other.
#pragma once

#include <cstdint>
#include <optional>

namespace tandem {

class StepSequence {
 public:
  bool empty() const { return last_ == 0; }
  int64_t last() const { return last_; }  // 0 where there is none

  // One above the last.
  void add(int64_t step) {
    if (!empty() && step != last_ + 1 && !gap_) gap_ = last_ + 1;
    last_ = step;
  }

  // The first step up to `last` that is not there. A sequence may begin anywhere: a run that goes on from
  // another's checkpoint does.
  std::optional<int64_t> first_missing(int64_t last) const {
    if (gap_) return gap_;
    return last_ < last ? std::optional(last_ + 1) : std::nullopt;
  }

 private:
  int64_t last_ = 0;
  std::optional<int64_t> gap_;
};

}  // namespace tandem
