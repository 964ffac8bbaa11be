#include <fmt/format.h>

#include <algorithm>

#include <fmt/format.h>

#include "tandem/pipeline/status.h"
#include "tandem/pipeline/svg.h"

namespace tandem::pipeline {
namespace {

constexpr double kBox = 190, kHigh = 46, kAcross = 70, kDown = 18, kEdge = 20;
constexpr size_t kMostLetters = 27;

struct Colors {
  std::string_view fill, stroke;
};

Colors colors_of(Progress progress) {
  switch (progress) {
    case Progress::Done: return {"#dafbe1", "#1a7f37"};
    case Progress::Running: return {"#ddf4ff", "#0969da"};
    case Progress::Failed: return {"#ffebe9", "#cf222e"};
    case Progress::Stopped: return {"#fff8c5", "#9a6700"};
    case Progress::ToDo: return {"#f6f8fa", "#8c959f"};
  }
  return {"#ffffff", "#000000"};
}

// The end says more than the beginning: of a path it is the name.
std::string fitted(const std::string& text) {
  if (text.size() <= kMostLetters) return text;
  size_t at = text.size() - kMostLetters;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80)
    ++at;  // not within a letter
  return "…" + text.substr(at);
}

struct Point {
  double x, y;
};

}  // namespace

std::string graph_svg(const Plan& plan, const std::vector<StepStatus>& status) {
  const std::vector<Step>& steps = plan.graph.steps;
  std::vector<size_t> column(steps.size()), rows;
  std::vector<Point> places;
  for (size_t step = 0; step < steps.size(); ++step) {
    for (int other : steps[step].needs)
      column[step] = std::max(column[step], column[static_cast<size_t>(other)] + 1);
    if (rows.size() <= column[step]) rows.resize(column[step] + 1);
    const double row = static_cast<double>(rows[column[step]]++);
    places.push_back(
        {kEdge + static_cast<double>(column[step]) * (kBox + kAcross), kEdge + row * (kHigh + kDown)});
  }
  Svg svg;
  for (size_t step = 0; step < steps.size(); ++step) {
    for (int other : steps[step].needs) {
      const Point from = {places[static_cast<size_t>(other)].x + kBox,
                          places[static_cast<size_t>(other)].y + kHigh / 2};
      const Point to = {places[step].x, places[step].y + kHigh / 2};
      const double bend = kAcross / 2;
      svg.path(fmt::format("M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f} m-6 -4 l6 4 l-6 4",
                           from.x, from.y, from.x + bend, from.y, to.x - bend, to.y, to.x, to.y),
               "#8c959f");
    }
  }
  for (size_t step = 0; step < steps.size(); ++step) {
    const Colors colors = colors_of(status[step].progress);
    svg.box(places[step].x, places[step].y, kBox, kHigh, colors.fill, colors.stroke);
    svg.text(places[step].x + 10, places[step].y + 19, fitted(steps[step].name), "#1f2328", 13);
    const std::string& when = steps[step].spec->when.text;
    const std::string second = when.empty() ? steps[step].out : "when " + when;
    svg.text(places[step].x + 10, places[step].y + 36,
             fitted(second.empty() ? std::string(name_of(status[step].progress)) : second), "#57606a", 11);
  }
  const size_t most = *std::max_element(rows.begin(), rows.end());
  return svg.finish(2 * kEdge + static_cast<double>(rows.size()) * (kBox + kAcross) - kAcross,
                    2 * kEdge + static_cast<double>(most) * (kHigh + kDown) - kDown);
}

}  // namespace tandem::pipeline
