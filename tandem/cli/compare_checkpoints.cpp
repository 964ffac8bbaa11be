#include "tandem/cli/compare_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "tandem/base/quantity.h"
#include "tandem/base/thread_pool.h"
#include "tandem/checkpoint/inspect.h"
#include "tandem/checkpoint/value_difference.h"

namespace tandem::cli {
namespace {

struct Row {
  std::string tensor;
  std::string what;  // but for values
  ValueDifference values;

  // What is there only once, or in another shape, is a difference beyond all numbers.
  double size() const {
    const double relative = values.relative();
    return !what.empty() || std::isnan(relative) ? std::numeric_limits<double>::infinity() : relative;
  }
};

std::string describe(const Row& row) {
  if (!row.what.empty()) return row.what;
  return fmt::format("{:>10.3g} {:>10.3g}  {} of {}", row.values.largest, row.values.relative(),
                     row.values.unequal, count_of(row.values.elems, "element"));
}

}  // namespace

bool compare_checkpoints(const Manifest& a, const Manifest& b, bool all) {
  constexpr size_t kShown = 10;
  ThreadPool pool(0);
  std::vector<Row> rows;
  int64_t num_tensors = 0;
  for (Difference& item : compare_all(a, b, &pool)) {
    ++num_tensors;
    if (item.what.empty()) continue;
    if (item.what == kOtherValues)
      rows.push_back({item.tensor, "", measure_difference(a, b, item.tensor, &pool)});
    else
      rows.push_back({std::move(item.tensor), std::move(item.what), {}});
  }
  if (rows.empty()) {
    std::printf("equal bit for bit: %s\n", count_of(num_tensors, "tensor").c_str());
    return true;
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& x, const Row& y) { return x.size() > y.size(); });
  const size_t shown = all ? rows.size() : std::min(kShown, rows.size());
  size_t width = 6;
  for (size_t i = 0; i < shown; ++i) width = std::max(width, rows[i].tensor.size());
  std::printf("%s\n", fmt::format("{} of {} differ", rows.size(), count_of(num_tensors, "tensor")).c_str());
  std::printf(
      "%s\n",
      fmt::format("{:<{}} {:>10} {:>10}  {}", "tensor", width, "largest", "relative", "differ").c_str());
  for (size_t i = 0; i < shown; ++i)
    std::printf("%s\n", fmt::format("{:<{}} {}", rows[i].tensor, width, describe(rows[i])).c_str());
  if (shown < rows.size()) std::printf("and %zu more; --all lists them\n", rows.size() - shown);
  return false;
}

}  // namespace tandem::cli
