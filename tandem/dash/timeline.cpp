#include "tandem/dash/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tandem::dash {
namespace {

using PlainJson = nlohmann::json;
using Lane = std::pair<int64_t, int64_t>;  // rank and stream

constexpr size_t kMostSpans = 50000;

struct Span {
  Lane lane;
  double start = 0, duration = 0;
  std::string kernel, executable;
  int64_t block = -1;
};

std::vector<Span> spans_of(const PlainJson& events) {
  std::vector<Span> spans;
  for (const PlainJson& event : events) {
    if (event.at("ph") != "X" || spans.size() >= 20 * kMostSpans) continue;
    Span span;
    span.lane = {event.at("pid"), event.at("tid")};
    span.start = event.at("ts");
    span.duration = event.at("dur");
    span.kernel = event.at("name");
    span.executable = event.at("cat");
    span.block = event.at("args").at("block");
    spans.push_back(std::move(span));
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.start < b.start; });
  return spans;
}

// A step ends with its update: the last one, and what comes after the update before it.
std::pair<size_t, size_t> last_step(const std::vector<Span>& spans) {
  size_t begin = 0, end = spans.size(), before = 0;
  for (size_t i = 1; i < spans.size(); ++i) {
    if (spans[i - 1].executable != "update" || spans[i].executable == "update") continue;
    before = begin;
    begin = i;
  }
  // A trace that was cut off within a step: the one before it is whole.
  const bool whole = std::any_of(spans.begin() + static_cast<std::ptrdiff_t>(begin), spans.end(),
                                 [](const Span& span) { return span.executable == "update"; });
  if (!whole && begin > 0) return {before, begin};
  return {begin, end};
}

template <typename Names>
size_t index_in(Names& names, const std::string& name) {
  return names.emplace(name, names.size()).first->second;
}

nlohmann::ordered_json list_of(const std::map<std::string, size_t>& names) {
  std::vector<std::string> list(names.size());
  for (const auto& [name, index] : names) list[index] = name;
  return list;
}

nlohmann::ordered_json draw_steps(const PlainJson& trace) {
  const PlainJson& events = trace.at("traceEvents");
  std::map<Lane, std::string> titles;
  for (const PlainJson& event : events) {
    if (event.at("ph") == "M" && event.at("name") == "thread_name")
      titles[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
  }
  const std::vector<Span> spans = spans_of(events);
  const auto [begin, end] = last_step(spans);
  if (begin == end) return nullptr;
  std::set<Lane> used;
  for (size_t i = begin; i < end; ++i) used.insert(spans[i].lane);
  const bool several = used.begin()->first != used.rbegin()->first;
  std::map<Lane, size_t> lanes;
  nlohmann::ordered_json picture = {{"total_us", 0.0}, {"lanes", PlainJson::array()}};
  for (const Lane& lane : used) {
    lanes[lane] = lanes.size();
    const std::string title = titles.contains(lane) ? titles[lane] : "computation";
    picture["lanes"].push_back(several ? fmt::format("rank {} {}", lane.first, title) : title);
  }
  std::map<std::string, size_t> kernels, executables;
  double total = 0;
  picture["spans"] = nlohmann::ordered_json::array();
  for (size_t i = begin; i < end && picture["spans"].size() < kMostSpans; ++i) {
    const Span& span = spans[i];
    const double start = span.start - spans[begin].start;
    total = std::max(total, start + span.duration);
    picture["spans"].push_back({lanes[span.lane], start, span.duration, index_in(kernels, span.kernel),
                                index_in(executables, span.executable), span.block});
  }
  picture["total_us"] = total;
  picture["kernels"] = list_of(kernels);
  picture["executables"] = list_of(executables);
  return picture;
}

}  // namespace

nlohmann::ordered_json timeline(const PlainJson& trace) {
  try {
    return draw_steps(trace);
  } catch (const PlainJson::exception&) {
    return nullptr;  // somebody else's file
  }
}

}  // namespace tandem::dash
