// Places buffers in an arena one after the other: each at the lowest offset where it overlaps none that was
// placed before and lives at the same time. Thousands of layers keep thousands of buffers alive, so it does
// not look at them one by one: they are in runs, in the order of their offsets, and a run that lives wholly
// beside a buffer's life, or wholly in it without a gap that is wide enough, is passed over as one.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

struct Lifetime {  // both ends included
  int32_t first = 0;
  int32_t last = 0;
  bool meets(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

class FirstFit {
 public:
  int64_t find(int64_t bytes, const Lifetime& lifetime) const;  // the lowest offset
  void put(int64_t offset, int64_t bytes, const Lifetime& lifetime);
  int64_t top() const { return top_; }  // where the highest buffer ends

 private:
  struct Taken {
    int64_t begin, end;
    Lifetime lifetime;
  };
  // Of what it has taken, all that find() needs to pass over it.
  struct Run {
    explicit Run(std::vector<Taken> sorted);
    bool can_hold(int64_t bytes, int64_t offset) const;  // where all of it is in the way, from this offset on

    std::vector<Taken> taken;  // by begin; never empty
    int64_t end = 0;
    int64_t widest_gap = 0;
    Lifetime any, all;  // from the first beginning to the last end, and the other way round
  };

  std::vector<Run> runs_;  // by begin
  int64_t top_ = 0;
};

}  // namespace tandem
