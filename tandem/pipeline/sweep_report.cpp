#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tandem/base/quantity.h"
#include "tandem/pipeline/curve.h"
#include "tandem/pipeline/svg.h"
#include "tandem/pipeline/sweep.h"

namespace tandem::pipeline {
namespace {

using ReportJson = nlohmann::ordered_json;

std::string_view name_of(TrialState state) {
  switch (state) {
    case TrialState::Finished: return "finished";
    case TrialState::Stopped: return "stopped";
    case TrialState::Failed: return "failed";
  }
  return "";
}

std::string sets_of(const Trial& trial) {
  std::string text;
  for (const std::string& set : trial.sets) text += (text.empty() ? "" : " ") + set;
  return text;
}

constexpr double kLeft = 70, kTop = 30, kWide = 620, kHigh = 360, kLegend = 18;
constexpr size_t kMostPoints = 300;
constexpr std::array<std::string_view, 6> kColors = {"#0969da", "#1a7f37", "#8250df",
                                                     "#bc4c00", "#0550ae", "#953800"};

struct Drawn {
  std::vector<std::pair<double, double>> points;  // step and the mean loss of the steps up to it
};

// Means of equal stretches: a curve's noise is not what is compared.
Drawn smoothed(const Curve& curve) {
  Drawn drawn;
  const size_t each = std::max<size_t>(1, (curve.steps.size() + kMostPoints - 1) / kMostPoints);
  for (size_t begin = 0; begin < curve.steps.size(); begin += each) {
    const size_t end = std::min(begin + each, curve.steps.size());
    double sum = 0;
    for (size_t at = begin; at < end; ++at) sum += curve.losses[at];
    const double mean = sum / static_cast<double>(end - begin);
    if (std::isfinite(mean)) drawn.points.emplace_back(static_cast<double>(curve.steps[end - 1]), mean);
  }
  return drawn;
}

struct Range {
  double low = 0, high = 1;
};

Range losses_of(const std::vector<Drawn>& all) {
  std::vector<double> values;
  for (const Drawn& drawn : all) {
    for (const auto& [step, loss] : drawn.points) values.push_back(loss);
  }
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  // A trial that diverges does not flatten the others.
  const double high = std::min(values.back(), values[values.size() * 98 / 100] * 1.2);
  return {values.front(), std::max(high, values.front() + 1e-6)};
}

void draw_axes(Svg& svg, const Range& losses, double last_step) {
  svg.path(fmt::format("M{} {} V{} H{}", kLeft, kTop, kTop + kHigh, kLeft + kWide), "#8c959f", 1);
  for (int tick = 0; tick <= 4; ++tick) {
    const double part = tick / 4.0;
    svg.text(kLeft - 8, kTop + kHigh * (1 - part) + 4,
             format_loss(losses.low + part * (losses.high - losses.low)), "#57606a", 11, "end");
    svg.text(kLeft + kWide * part, kTop + kHigh + 18, fmt::format("{:.0f}", part * last_step), "#57606a", 11,
             "middle");
  }
  svg.text(kLeft, kTop - 12, "loss over steps", "#1f2328", 13);
}

}  // namespace

std::string sweep_table(const Sweep& sweep, const SweepResult& result) {
  size_t width = 6;
  for (const Trial& trial : sweep.trials) width = std::max(width, sets_of(trial).size());
  std::string text = fmt::format("rank  trial  {:<{}}  {:>9}  {:>9}  state\n", "config", width, "steps",
                                 result.by_eval ? "eval_loss" : "loss");
  for (size_t rank = 0; rank < result.ranking.size(); ++rank) {
    const size_t trial = result.ranking[rank];
    const TrialResult& each = result.trials[trial];
    const bool failed = each.state == TrialState::Failed;
    text += fmt::format(
        "{:>4}  {:>5}  {:<{}}  {:>9}  {:>9}  {}{}\n", rank + 1, trial, sets_of(sweep.trials[trial]), width,
        fmt::format("{}/{}", each.steps, sweep.trials[trial].steps), failed ? "-" : format_loss(each.loss),
        name_of(each.state), each.note.empty() ? "" : ": " + each.note);
  }
  return text;
}

std::string sweep_json(const Sweep& sweep, const SweepResult& result) {
  ReportJson trials = ReportJson::array();
  for (size_t trial : result.ranking) {
    const TrialResult& each = result.trials[trial];
    ReportJson object = {
        {"trial", trial},
        {"sets", sweep.trials[trial].sets},
        {"run", sweep.run_of(trial).string()},
        {"state", name_of(each.state)},
        {"steps", each.steps},
        {"of", sweep.trials[trial].steps},
        {"loss", std::isfinite(each.loss) && each.state != TrialState::Failed ? ReportJson(each.loss)
                                                                              : ReportJson()}};
    if (!each.note.empty()) object["note"] = each.note;
    trials.push_back(std::move(object));
  }
  const ReportJson all = {{"compared_by", result.by_eval ? "eval_loss" : "loss"},
                          {"trials", std::move(trials)}};
  return all.dump(1, ' ', false, ReportJson::error_handler_t::replace) + "\n";
}

std::string sweep_svg(const Sweep& sweep, const SweepResult& result) {
  std::vector<Drawn> drawn;
  double last_step = 1;
  for (size_t trial = 0; trial < sweep.trials.size(); ++trial) {
    drawn.push_back(smoothed(read_curve(sweep.run_of(trial))));
    last_step = std::max(last_step, static_cast<double>(sweep.trials[trial].steps));
  }
  const Range losses = losses_of(drawn);
  Svg svg;
  draw_axes(svg, losses, last_step);
  for (size_t rank = result.ranking.size(); rank-- > 0;) {  // the best on top
    const size_t trial = result.ranking[rank];
    std::string path;
    for (const auto& [step, loss] : drawn[trial].points) {
      const double y = std::clamp((losses.high - loss) / (losses.high - losses.low), 0.0, 1.0);
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", kLeft + kWide * step / last_step,
                          kTop + kHigh * y);
    }
    const std::string_view color = rank < kColors.size() ? kColors[rank] : "#afb8c1";
    if (!path.empty()) svg.path(path, color, rank == 0 ? 2.5 : 1.2);
    const double y = kTop + kHigh + 44 + kLegend * static_cast<double>(rank);
    svg.path(fmt::format("M{} {:.1f} h24", kLeft, y - 4), color, rank == 0 ? 3 : 2);
    const TrialResult& each = result.trials[trial];
    svg.text(kLeft + 32, y,
             fmt::format("{}: {} ({}, step {})", sets_of(sweep.trials[trial]),
                         each.state == TrialState::Failed ? "-" : format_loss(each.loss), name_of(each.state),
                         each.steps));
  }
  return svg.finish(kLeft + kWide + 30,
                    kTop + kHigh + 60 + kLegend * static_cast<double>(result.ranking.size()));
}

}  // namespace tandem::pipeline
