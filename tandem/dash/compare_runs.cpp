#include "tandem/dash/compare_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "tandem/base/error.h"
#include "tandem/dash/run_list.h"
#include "tandem/dash/series.h"
#include "tandem/dash/text_plot.h"

namespace tandem::dash {
namespace {

Series rows_of(const RunFolder& run) {
  const auto file = run.file("metrics.jsonl");
  if (!file) throw DataError("{}: has no metrics.jsonl; expected a run's directory", run.path().string());
  Series series(*file);
  series.update();
  return series;
}

// What is not a number in both is the same.
bool same_bits(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

Json compare_losses(const Series& a, const Series& b) {
  const auto x = a.column("loss"), y = b.column("loss");
  std::vector<std::pair<size_t, size_t>> common;
  for (size_t i = 0, k = 0; i < x.size() && k < y.size();) {
    if (a.steps()[i] == b.steps()[k])
      common.emplace_back(i++, k++);
    else if (a.steps()[i] < b.steps()[k])
      ++i;
    else
      ++k;
  }
  Json found = {{"common", common.size()}, {"first_different", nullptr}};
  for (const auto& [i, k] : common) {
    if (same_bits(x[i], y[k])) continue;
    found["first_different"] = a.steps()[i];
    break;
  }
  const size_t last = std::max<size_t>(1, common.size() / 10);  // of them, whose mean is less of a chance
  if (common.empty()) return found;
  double mean_a = 0, mean_b = 0;
  for (size_t n = common.size() - last; n < common.size(); ++n) {
    mean_a += static_cast<double>(x[common[n].first]) / static_cast<double>(last);
    mean_b += static_cast<double>(y[common[n].second]) / static_cast<double>(last);
  }
  found["mean_of_last"] = last;
  found["until"] = a.steps()[common.back().first];
  found["mean_a"] = std::isfinite(mean_a) ? Json(mean_a) : Json();
  found["mean_b"] = std::isfinite(mean_b) ? Json(mean_b) : Json();
  return found;
}

Json config_differences(const RunFolder& a, const RunFolder& b) {
  std::map<std::string, std::pair<std::string, std::string>> keys;
  for (const auto& [key, value] : a.config()) keys[key].first = value;
  for (const auto& [key, value] : b.config()) keys[key].second = value;
  Json rows = Json::array();
  for (const auto& [key, values] : keys) {
    if (values.first != values.second)
      rows.push_back({{"key", key}, {"a", values.first}, {"b", values.second}});
  }
  return rows;
}

std::string shown(const Json& row, const char* key) {
  if (!row.contains(key) || row[key].is_null()) return "-";
  return row[key].is_string() ? row[key].get<std::string>() : fmt::format("{:.6g}", row[key].get<double>());
}

}  // namespace

Json compare_runs(const RunFolder& a, const RunFolder& b) {
  const Series rows_a = rows_of(a), rows_b = rows_of(b);
  return {{"runs", {list_row(a.path().string(), a, false), list_row(b.path().string(), b, false)}},
          {"loss", compare_losses(rows_a, rows_b)},
          {"config", config_differences(a, b)}};
}

std::string comparison_text(const Json& comparison) {
  std::vector<std::vector<std::string>> table;
  const Json& a = comparison["runs"][0];
  const Json& b = comparison["runs"][1];
  table.push_back({"", shown(a, "id"), shown(b, "id"), ""});
  for (const char* key : {"state", "step", "loss", "eval_loss", "rate", "mfu"}) {
    std::string ratio;
    if (a.contains(key) && b.contains(key) && a[key].is_number() && b[key].is_number() &&
        std::strcmp(key, "step") != 0 && a[key].get<double>() != 0)
      ratio = fmt::format("{:+.1f}%", 100 * (b[key].get<double>() / a[key].get<double>() - 1));
    const std::string name = std::strcmp(key, "rate") == 0 ? a.value("unit", "tokens") + "_per_s" : key;
    table.push_back({name, shown(a, key), shown(b, key), ratio});
  }
  const Json& loss = comparison["loss"];
  if (loss.contains("mean_a")) {
    table.push_back({fmt::format("loss, mean of {} steps up to {}", loss["mean_of_last"].get<int64_t>(),
                                 shown(loss, "until")),
                     shown(loss, "mean_a"), shown(loss, "mean_b"), ""});
  }
  for (const Json& row : comparison["config"])
    table.push_back({shown(row, "key"), shown(row, "a"), shown(row, "b"), ""});
  size_t widths[3] = {};
  for (const auto& row : table) {
    for (size_t i = 0; i < 3; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : table) {
    std::string line = fmt::format("{:<{}}  {:<{}}  {:<{}}  {}", row[0], widths[0], row[1], widths[1], row[2],
                                   widths[2], row[3]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  const auto common = loss["common"].get<int64_t>();
  text += loss["first_different"].is_null()
              ? fmt::format("losses are equal bit for bit in all {} steps that both have\n", common)
              : fmt::format("losses differ from step {} on; both have {} steps\n",
                            shown(loss, "first_different"), common);
  return text;
}

std::string plot_runs(const RunFolder& a, const RunFolder& b, const std::string& name, int width,
                      bool colored) {
  std::vector<TextCurve> curves;
  std::string known;
  for (const RunFolder* run : {&a, &b}) {
    const Series series = rows_of(*run);
    const auto values = series.column(name);
    TextCurve curve{run->path().string(), {}, {}};
    for (uint32_t row : downsample(values, 0, values.size(), 2000)) {
      curve.xs.push_back(series.steps()[row]);
      curve.ys.push_back(static_cast<double>(values[row]));
    }
    if (!curve.xs.empty()) curves.push_back(std::move(curve));
    known.clear();
    for (const std::string& column : series.names()) known += (known.empty() ? "" : ", ") + column;
  }
  if (curves.empty())
    throw DataError("--plot {}: no such numbers in metrics.jsonl; there are {}", name, known);
  return braille_plot(curves, width, 16, colored);
}

}  // namespace tandem::dash
