#include "tandem/pipeline/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tandem/base/file.h"
#include "tandem/base/quantity.h"
#include "tandem/config/values.h"
#include "tandem/pipeline/lock.h"
#include "tandem/pipeline/remote_store.h"

namespace tandem::pipeline {
namespace {

namespace fs = std::filesystem;

// The newest record of every step, whatever its key, by the step's name.
std::map<std::string, Json> newest_records(const Plan& plan) {
  std::map<std::string, Json> newest;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(plan.store(), error)) {
    const fs::path file = entry.path() / kRecord;
    if (!is_there(file)) continue;
    std::optional<Json> record = parse_record(read_text(file));
    if (!record) continue;
    Json& kept = newest[record->at("step").get<std::string>()];
    if (kept.is_null() || kept.value("end", "") < record->value("end", "")) kept = std::move(*record);
  }
  return newest;
}

std::string difference(const Plan& plan, size_t step, const Json& before) {
  const Step& now = plan.graph.steps[step];
  std::map<std::string, std::string> digests;
  for (const Json& input : before.value("inputs", Json::array()))
    digests[input.value("path", "")] = input.value("digest", "");
  for (size_t at = 0; at < now.inputs.size(); ++at) {
    if (now.inputs[at].step >= 0) continue;
    const auto found = digests.find(now.inputs[at].path);
    if (found != digests.end() && found->second != plan.work[step].digests[at])
      return fmt::format("{} has changed", now.inputs[at].path);
  }
  const Json needs = before.value("needs", Json::object());
  for (int other : now.needs) {
    const std::string& name = plan.graph.steps[static_cast<size_t>(other)].name;
    if (needs.contains(name) && needs[name].value("key", "") != plan.work[static_cast<size_t>(other)].key)
      return fmt::format("{} is another", name);
  }
  if (before.value("key", "") == plan.work[step].key) return "its output is gone";
  return "its words have changed";
}

std::string cell(const std::string& text, size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}

std::string detail_of(const StepStatus& status) {
  switch (status.progress) {
    case Progress::Done:
      return fmt::format("{}, {}", status.record.value("end", "").substr(0, 19),
                         format_duration(status.record.value("seconds", 0.0)));
    case Progress::Running: return fmt::format("since {}", status.attempt.start.substr(0, 19));
    case Progress::Failed: return status.attempt.failure;
    case Progress::Stopped: return "was interrupted";
    case Progress::ToDo: return status.why;
  }
  return "";
}

}  // namespace

std::string_view name_of(Progress progress) {
  switch (progress) {
    case Progress::Done: return "done";
    case Progress::Running: return "running";
    case Progress::Failed: return "failed";
    case Progress::Stopped: return "stopped";
    case Progress::ToDo: return "to do";
  }
  return "";
}

std::vector<StepStatus> read_status(const Plan& plan) {
  std::vector<StepStatus> all(plan.work.size());
  const pid_t runner = runner_of(plan.store());
  const std::map<std::string, Json> newest = newest_records(plan);
  std::optional<RemoteStore> remote;
  if (!plan.graph.spec.remote.empty()) remote.emplace(plan.graph.spec.remote);
  for (size_t step = 0; step < all.size(); ++step) {
    StepStatus& status = all[step];
    std::optional<Json> record = read_record(plan, step);
    if (!record && remote) record = remote->record(plan, step);
    if (record) {
      status.progress = Progress::Done;
      status.record = std::move(*record);
      continue;
    }
    status.attempt = read_attempt(plan, step);
    if (status.attempt.number > 0) {
      status.progress = Progress::Stopped;
      if (runner != 0 && status.attempt.runner == runner) status.progress = Progress::Running;
      if (!status.attempt.failure.empty()) status.progress = Progress::Failed;
      continue;
    }
    const auto before = newest.find(plan.graph.steps[step].name);
    if (before != newest.end()) status.why = difference(plan, step, before->second);
  }
  return all;
}

std::string status_table(const Plan& plan, const std::vector<StepStatus>& status) {
  size_t names = 4, outs = 3, details = 0;
  for (size_t step = 0; step < status.size(); ++step) {
    names = std::max(names, plan.graph.steps[step].name.size());
    outs = std::max(outs, plan.graph.steps[step].out.size());
    details = std::max(details, detail_of(status[step]).size());
  }
  names = std::min<size_t>(names, 40);
  outs = std::min<size_t>(outs, 40);
  std::string text = fmt::format("{}  {}  {}  \n", cell("step", names), cell("state", 7), cell("out", outs));
  for (size_t step = 0; step < status.size(); ++step) {
    text += fmt::format("{}  {}  {}  {}\n", cell(plan.graph.steps[step].name, names),
                        cell(std::string(name_of(status[step].progress)), 7),
                        cell(plan.graph.steps[step].out, outs), detail_of(status[step]));
  }
  std::string trimmed;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    trimmed += text.substr(at, text.find_last_not_of(' ', end - 1) + 1 - at) + "\n";
    at = end + 1;
  }
  return trimmed;
}

Json status_json(const Plan& plan, const std::vector<StepStatus>& status) {
  Json list = Json::array();
  for (size_t step = 0; step < status.size(); ++step) {
    const Step& of = plan.graph.steps[step];
    Json needs = Json::array();
    for (int other : of.needs) needs.push_back(plan.graph.steps[static_cast<size_t>(other)].name);
    Json each = {{"step", of.name},
                 {"state", name_of(status[step].progress)},
                 {"key", plan.work[step].key},
                 {"needs", needs},
                 {"values", of.values},
                 {"out", of.out.empty() ? Json() : Json(of.out)},
                 {"output", plan.work[step].output.empty() ? Json() : Json(plan.work[step].output)},
                 {"log", (plan.work[step].home / kLog).string()}};
    if (!of.spec->when.text.empty()) each["when"] = of.spec->when.text;
    if (!status[step].why.empty()) each["why"] = status[step].why;
    if (!status[step].attempt.failure.empty()) each["failure"] = status[step].attempt.failure;
    if (!status[step].record.is_null()) {
      for (const char* key : {"start", "end", "seconds", "attempts", "metrics", "host", "job"}) {
        if (status[step].record.contains(key)) each[key] = status[step].record[key];
      }
    }
    list.push_back(std::move(each));
  }
  return {{"file", plan.graph.spec.file.string()},
          {"store", plan.graph.spec.remote.empty() ? plan.graph.spec.store : plan.graph.spec.remote},
          {"steps", std::move(list)}};
}

std::string graph_text(const Plan& plan, const std::vector<StepStatus>& status) {
  const std::vector<Step>& steps = plan.graph.steps;
  std::vector<std::vector<size_t>> below(steps.size());
  std::vector<size_t> roots;
  for (size_t step = 0; step < steps.size(); ++step) {
    if (steps[step].needs.empty()) {
      roots.push_back(step);
    } else {
      below[static_cast<size_t>(steps[step].needs.back())].push_back(step);
    }
  }
  struct Place {
    size_t step;
    std::string stem, branch;
  };
  std::vector<Place> open;
  for (auto root = roots.rbegin(); root != roots.rend(); ++root) open.push_back({*root, "", ""});
  std::string text;
  while (!open.empty()) {
    const Place place = open.back();
    open.pop_back();
    const Step& step = steps[place.step];
    text += place.branch + step.name;
    if (!step.out.empty()) text += " -> " + step.out;
    text += fmt::format("  [{}]", name_of(status[place.step].progress));
    if (!step.spec->when.text.empty()) text += "  when " + step.spec->when.text;
    if (step.needs.size() > 1) {
      text += "  needs also";
      for (size_t at = 0; at + 1 < step.needs.size(); ++at)
        text += (at == 0 ? " " : ", ") + steps[static_cast<size_t>(step.needs[at])].name;
    }
    text += "\n";
    const std::vector<size_t>& next = below[place.step];
    for (size_t at = next.size(); at-- > 0;) {
      const bool last = at + 1 == next.size();
      open.push_back({next[at], place.stem + (last ? "   " : "│  "), place.stem + (last ? "└─ " : "├─ ")});
    }
  }
  return text;
}

}  // namespace tandem::pipeline
