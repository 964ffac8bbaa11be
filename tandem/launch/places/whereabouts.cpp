#include "tandem/launch/places/whereabouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace tandem {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void read_busy(const PlacePage& page, Whereabouts& place) {
  const auto done = static_cast<int64_t>(page.steps_done.load(std::memory_order_acquire));
  place.steps_done = done;
  std::vector<double> last, before;
  for (int64_t back = 1; back <= std::min<int64_t>(done, 2 * kBusySteps); ++back) {
    const uint64_t entry =
        page.busy_us[static_cast<size_t>(done - back) % PlacePage::kSteps].load(std::memory_order_relaxed);
    (back <= kBusySteps ? last : before).push_back(static_cast<double>(entry & 0xffffffffff) / 1e3);
  }
  place.busy_ms = median(last);
  place.busy_before_ms = median(before);
}

void read_calls(const PlacePage& page, Whereabouts& place) {
  for (const Axis axis : kAxes) {
    for (int kind = 0; kind < kNumCallKinds; ++kind) {
      const LineRecord line = page.calls[static_cast<size_t>(axis)][kind].read();
      if (line.index == 0) continue;
      Whereabouts::Call call{axis,       static_cast<CallKind>(kind),
                             line.index, line.doing == Doing::Communicates,
                             line.peer,  std::string(line.get_name())};
      if (!line.get_label().empty()) call.name += fmt::format(" {}", line.get_label());
      const std::vector<int> group = place.group(call);
      if (call.peer >= 0)
        call.peer = call.peer < static_cast<int>(group.size()) ? group[static_cast<size_t>(call.peer)] : -1;
      place.calls.push_back(std::move(call));
    }
  }
}

void take(Whereabouts& place, const LineRecord& line) {
  place.index = line.index;
  place.command = line.get_name();
  place.block = line.block;
  place.collective = line.doing == Doing::Communicates;
}

bool blames(const std::string& state) { return state == "stopped" || state == "stuck" || state == "gone"; }

}  // namespace

const Whereabouts::Call* Whereabouts::call() const {
  const auto found = std::find_if(calls.begin(), calls.end(), [](const Call& each) { return each.inside; });
  return found != calls.end() ? &*found : nullptr;
}

std::vector<int> Whereabouts::group(const Call& each) const {
  if (shape.world() <= 1 || rank >= shape.world()) return {rank};
  return MeshPosition::of(shape, rank).group(each.axis);
}

// Computation comes first; where it waits for a stream beside it, that stream's command is the place.
Whereabouts read_whereabouts(const PlacePage& page, int rank) {
  Whereabouts place;
  place.rank = rank;
  if (!page.is_used()) return place;
  place.shape = {page.data, page.tensor, page.pipeline};
  const MainRecord main = page.main.read();
  place.state = place.phase = state_name(main.state);
  place.step = main.step;
  place.pass = main.pass;
  place.passes = main.passes;
  place.commands = main.commands;
  place.program = std::string(main.program, strnlen(main.program, sizeof(main.program)));
  place.what = std::string(main.what, strnlen(main.what, sizeof(main.what)));
  read_calls(page, place);
  read_busy(page, place);
  for (const auto& stream : page.streams) place.computes |= stream.read().doing == Doing::Computes;
  const LineRecord compute = page.streams[0].read();
  const auto is_busy = [](const LineRecord& line) {
    return line.doing == Doing::Computes || line.doing == Doing::Communicates;
  };
  if (is_busy(compute)) {
    take(place, compute);
  } else if (compute.doing == Doing::WaitsForStream) {
    for (int stream = 1; stream < PlacePage::kStreams; ++stream) {
      const LineRecord line = page.streams[stream].read();
      if (is_busy(line)) take(place, line);
      if (place.collective) break;
    }
  } else if (compute.doing == Doing::WaitsForDevice) {
    place.what = "device";
  }
  if (place.command.empty() && place.call() != nullptr) {
    place.command = place.call()->name;
    place.collective = true;
  }
  if (place.state == "running" && place.collective) place.state = "waiting";
  return place;
}

void find_waits(std::span<Whereabouts> ranks) {
  const auto find = [&](int rank) -> const Whereabouts* {
    const auto found = std::find_if(ranks.begin(), ranks.end(),
                                    [&](const Whereabouts& place) { return place.rank == rank; });
    return found != ranks.end() ? &*found : nullptr;
  };
  for (Whereabouts& place : ranks) {
    std::set<int> others;
    for (const Whereabouts::Call& call : place.calls) {
      if (!call.inside) continue;
      if (call.kind != CallKind::Collective) {
        if (call.peer >= 0) others.insert(call.peer);
        continue;
      }
      std::set<int> late, blamed;
      for (const int member : place.group(call)) {
        const Whereabouts* other = member == place.rank ? nullptr : find(member);
        if (other == nullptr) continue;
        const auto same = std::find_if(
            other->calls.begin(), other->calls.end(),
            [&](const Whereabouts::Call& each) { return each.axis == call.axis && each.kind == call.kind; });
        if (same == other->calls.end() || same->count < call.count) late.insert(member);
        if (blames(other->state)) blamed.insert(member);
      }
      place.waits_for_late |= !late.empty();
      others.merge(late.empty() ? blamed : late);
    }
    place.waiting_for.assign(others.begin(), others.end());
  }
}

std::vector<int> waiters_of(int rank, std::span<const Whereabouts> ranks) {
  std::set<int> found = {rank};
  for (size_t before = 0; before != found.size();) {
    before = found.size();
    for (const Whereabouts& place : ranks) {
      if (std::any_of(place.waiting_for.begin(), place.waiting_for.end(),
                      [&](int other) { return found.contains(other); }))
        found.insert(place.rank);
    }
  }
  found.erase(rank);
  return {found.begin(), found.end()};
}

std::string describe_place(const Whereabouts& place) {
  if (place.index >= 0) {
    const std::string block = place.block >= 0 ? fmt::format(" of block {}", place.block) : "";
    const std::string program = place.program == "pass" && place.passes > 0
                                    ? fmt::format("pass {} of {}", place.pass, place.passes)
                                    : place.program;
    return fmt::format("in {}{} ({}, command {} of {})", place.command, block, program, place.index + 1,
                       place.commands);
  }
  if (place.phase == "saving") return "while it saves";
  if (place.collective) return fmt::format("in {}", place.command);
  if (place.phase == "starting") return "while it starts";
  if (place.phase == "connecting") return "while it connects";
  if (place.phase == "compiling") return "while it compiles the step";
  if (place.phase == "restoring") return "while it reads the state to begin with";
  if (place.phase == "done") return "at its end";
  if (place.what == "data") return fmt::format("while it waits for data, in step {}", place.step);
  if (place.what == "device") return fmt::format("while it waits for its device, in step {}", place.step);
  return fmt::format("between commands, in step {}", place.step);
}

nlohmann::json to_json(const Whereabouts& place) {
  nlohmann::json json = {{"rank", place.rank},   {"node", place.node}, {"pid", place.pid},
                         {"state", place.state}, {"step", place.step}, {"since_s", place.since_s}};
  json["command"] = place.command.empty() ? nlohmann::json() : nlohmann::json(place.command);
  json["block"] = place.block >= 0 ? nlohmann::json(place.block) : nlohmann::json();
  json["waiting_for"] = place.waiting_for;
  json["collective"] = place.collective;
  if (!place.program.empty())
    json.update({{"program", place.program}, {"pass", place.pass}, {"passes", place.passes}});
  if (place.index >= 0) json.update({{"index", place.index + 1}, {"commands", place.commands}});
  if (!place.what.empty()) json["what"] = place.what;
  json["phase"] = place.phase;
  return json;
}

nlohmann::json to_message(const Whereabouts& place) {
  nlohmann::json json = to_json(place);
  json["mesh"] = {place.shape.data, place.shape.tensor, place.shape.pipeline};
  json["busy"] = {place.steps_done, place.busy_ms, place.busy_before_ms};
  json["computes"] = place.computes;
  json["calls"] = nlohmann::json::array();
  for (const Whereabouts::Call& call : place.calls)
    json["calls"].push_back({static_cast<int>(call.axis), static_cast<int>(call.kind), call.count,
                             call.inside ? 1 : 0, call.peer});
  return json;
}

Whereabouts from_message(const nlohmann::json& json) {
  Whereabouts place;
  if (!json.is_object()) return place;
  const auto text = [&](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : std::string();
  };
  const auto number = [](const nlohmann::json& list, size_t i, double otherwise = 0) {
    return list.is_array() && list.size() > i && list[i].is_number() ? list[i].get<double>() : otherwise;
  };
  const auto integer = [&](const char* key, int64_t otherwise) {
    return json.contains(key) && json[key].is_number() ? json[key].get<int64_t>() : otherwise;
  };
  place.rank = static_cast<int>(integer("rank", 0));
  place.node = text("node");
  place.pid = integer("pid", 0);
  if (!text("state").empty()) place.state = text("state");
  if (!text("phase").empty()) place.phase = text("phase");
  place.step = integer("step", 0);
  place.pass = integer("pass", 0);
  place.passes = integer("passes", 0);
  place.program = text("program");
  place.commands = integer("commands", 0);
  place.index = integer("index", 0) - 1;
  place.command = text("command");
  place.block = static_cast<int>(integer("block", -1));
  place.collective = json.value("collective", nlohmann::json()) == true;
  place.computes = json.value("computes", nlohmann::json()) == true;
  place.what = text("what");
  place.since_s = number(nlohmann::json::array({json.value("since_s", nlohmann::json())}), 0);
  const nlohmann::json mesh = json.value("mesh", nlohmann::json()),
                       busy = json.value("busy", nlohmann::json());
  const auto size = [&](size_t i) { return std::clamp(static_cast<int>(number(mesh, i, 1)), 1, 1 << 20); };
  place.shape = {size(0), size(1), size(2)};
  place.steps_done = static_cast<int64_t>(number(busy, 0));
  place.busy_ms = number(busy, 1);
  place.busy_before_ms = number(busy, 2);
  for (const nlohmann::json& call : json.value("calls", nlohmann::json::array())) {
    const double axis = number(call, 0, -1), kind = number(call, 1, -1);
    if (axis < 0 || axis >= kNumAxes || kind < 0 || kind >= kNumCallKinds) continue;
    place.calls.push_back({static_cast<Axis>(axis), static_cast<CallKind>(kind),
                           static_cast<int64_t>(number(call, 2)), number(call, 3) != 0,
                           static_cast<int>(number(call, 4, -1)), ""});
  }
  return place;
}

}  // namespace tandem
