#include "tandem/cli/kernel_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace tandem::cli {
namespace {

using Row = std::pair<std::string, KernelTime>;

std::vector<Row> slowest_first(const std::map<std::string, KernelTime>& kernels) {
  std::vector<Row> rows(kernels.begin(), kernels.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.second.seconds > b.second.seconds; });
  return rows;
}

std::string_view bound_name(Bound bound) {
  switch (bound) {
    case Bound::Compute: return "compute";
    case Bound::Memory: return "memory";
    case Bound::Cache: return "cache";
  }
  return "";
}

// A time's share of the step, in the units of the JSON.
double share_of(const KernelTime& time, const Profiled& profiled) {
  return time.seconds / static_cast<double>(profiled.steps) / profiled.step_s;
}

double share_between(const Profiled& profiled) {
  double left = 1;
  for (const auto& [name, time] : profiled.computing) left -= share_of(time, profiled);
  return left;
}

std::string table_row(const Row& row, const std::string& share, const Profiled& profiled,
                      const Ceilings& ceilings) {
  const auto& [name, time] = row;
  const auto steps = static_cast<double>(profiled.steps);
  const Ceiling limit = ceiling_of(time, ceilings);
  const std::string fraction =
      limit.bound == Bound::Cache ? "cached" : fmt::format("{:.1f}%", 100 * limit.fraction);
  return fmt::format("{:<30} {:>6.0f} {:>10.2f} {:>7} {:>10.1f} {:>8.1f} {:>11}  {}\n", name,
                     static_cast<double>(time.calls) / steps, time.seconds * 1e3 / steps, share,
                     time.flops / time.seconds / 1e9, time.bytes / time.seconds / 1e9, fraction,
                     bound_name(limit.bound));
}

nlohmann::json json_row(const Row& row, const Profiled& profiled, const Ceilings& ceilings) {
  const auto& [name, time] = row;
  const auto steps = static_cast<double>(profiled.steps);
  const Ceiling limit = ceiling_of(time, ceilings);
  nlohmann::json object = {{"kernel", name},
                           {"calls", static_cast<double>(time.calls) / steps},
                           {"ms", time.seconds * 1e3 / steps},
                           {"bound", bound_name(limit.bound)}};
  object["of_ceiling"] = limit.bound == Bound::Cache ? nlohmann::json() : nlohmann::json(limit.fraction);
  return object;
}

}  // namespace

Ceiling ceiling_of(const KernelTime& time, const Ceilings& ceilings) {
  const double fp8_s = ceilings.fp8_flops > 0 ? time.fp8_flops / ceilings.fp8_flops : 0;
  const double compute_s = (time.flops - time.fp8_flops) / ceilings.flops + fp8_s;
  const double memory_s = time.bytes / ceilings.bandwidth;
  if (compute_s >= memory_s) return {Bound::Compute, compute_s / time.seconds};
  if (memory_s > time.seconds) return {Bound::Cache, 0};
  return {Bound::Memory, memory_s / time.seconds};
}

std::string kernel_table(const Profiled& profiled, const Ceilings& ceilings) {
  const std::string fp8 =
      ceilings.fp8_flops > 0 ? fmt::format(" ({:.1f} in 8 bits)", ceilings.fp8_flops / 1e9) : "";
  std::string text = fmt::format("ceilings: {:.1f} GFLOP/s{}, {:.1f} GB/s; step {:.1f} ms\n",
                                 ceilings.flops / 1e9, fp8, ceilings.bandwidth / 1e9, profiled.step_s * 1e3);
  text += fmt::format("{:<30} {:>6} {:>10} {:>7} {:>10} {:>8} {:>11}  bound\n", "kernel", "calls", "ms/step",
                      "share", "GFLOP/s", "GB/s", "of ceiling");
  for (const Row& row : slowest_first(profiled.computing))
    text += table_row(row, fmt::format("{:.1f}%", 100 * share_of(row.second, profiled)), profiled, ceilings);
  const double between = share_between(profiled);
  text += fmt::format("{:<30} {:>6} {:>10.2f} {:>6.1f}%\n", "(between kernels)", "",
                      between * profiled.step_s * 1e3, 100 * between);
  for (Row row : slowest_first(profiled.beside)) {
    row.first += " (beside)";
    text += table_row(row, "-", profiled, ceilings);
  }
  return text;
}

nlohmann::json kernel_json(const Profiled& profiled, const Ceilings& ceilings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Row& row : slowest_first(profiled.computing)) {
    list.push_back(json_row(row, profiled, ceilings));
    list.back()["share"] = share_of(row.second, profiled);
  }
  for (Row row : slowest_first(profiled.beside)) {
    row.first += " (beside)";
    list.push_back(json_row(row, profiled, ceilings));
    list.back()["share"] = nullptr;
  }
  return {{"step_ms", profiled.step_s * 1e3},
          {"peak_gflops", ceilings.flops / 1e9},
          {"peak_fp8_gflops", ceilings.fp8_flops / 1e9},
          {"copy_gb_per_s", ceilings.bandwidth / 1e9},
          {"share_between", share_between(profiled)},
          {"kernels", list}};
}

}  // namespace tandem::cli
