#include "tandem/compile/first_fit.h"

#include <algorithm>
#include <limits>

namespace tandem {
namespace {

constexpr size_t kLongestRun = 128;

}  // namespace

FirstFit::Run::Run(std::vector<Taken> sorted)
    : taken(std::move(sorted)),
      end(taken.front().end),
      widest_gap(std::numeric_limits<int64_t>::min()),
      any(taken.front().lifetime),
      all(any) {
  for (size_t i = 1; i < taken.size(); ++i) {
    const Taken& next = taken[i];
    widest_gap = std::max(widest_gap, next.begin - end);
    end = std::max(end, next.end);
    any = {std::min(any.first, next.lifetime.first), std::max(any.last, next.lifetime.last)};
    all = {std::max(all.first, next.lifetime.first), std::min(all.last, next.lifetime.last)};
  }
}

bool FirstFit::Run::can_hold(int64_t bytes, int64_t offset) const {
  return taken.front().begin - offset >= bytes || widest_gap >= bytes;
}

int64_t FirstFit::find(int64_t bytes, const Lifetime& lifetime) const {
  int64_t offset = 0;
  for (const Run& run : runs_) {
    if (!run.any.meets(lifetime)) continue;
    const bool all_meet = run.all.first <= lifetime.last && lifetime.first <= run.all.last;
    if (all_meet && !run.can_hold(bytes, offset)) {
      offset = std::max(offset, run.end);
      continue;
    }
    for (const Taken& taken : run.taken) {
      if (!taken.lifetime.meets(lifetime)) continue;
      if (taken.begin - offset >= bytes) return offset;
      offset = std::max(offset, taken.end);
    }
  }
  return offset;
}

void FirstFit::put(int64_t offset, int64_t bytes, const Lifetime& lifetime) {
  const Taken taken{offset, offset + bytes, lifetime};
  top_ = std::max(top_, taken.end);
  if (runs_.empty()) {
    runs_.push_back(Run({taken}));
    return;
  }
  const auto before = [](int64_t begin, const auto& other) { return begin < other.begin; };
  auto run = std::upper_bound(runs_.begin(), runs_.end(), offset, [](int64_t begin, const Run& other) {
    return begin < other.taken.front().begin;
  });
  if (run != runs_.begin()) --run;
  std::vector<Taken> list = std::move(run->taken);
  list.insert(std::upper_bound(list.begin(), list.end(), offset, before), taken);
  if (list.size() > kLongestRun) {
    const auto middle = list.begin() + kLongestRun / 2;
    run = runs_.insert(run + 1, Run({middle, list.end()})) - 1;
    list.erase(middle, list.end());
  }
  *run = Run(std::move(list));
}

}  // namespace tandem
