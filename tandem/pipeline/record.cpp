#include "tandem/pipeline/record.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/json_text.h"
#include "tandem/base/system.h"
#include "tandem/config/values.h"
#include "tandem/pipeline/cluster_job.h"

namespace tandem::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAttempt = "attempt.json";
constexpr int64_t kMostMetrics = 16 << 20;

Json parsed(const std::string& text) {
  try {
    check_json_depth(text, "");
  } catch (const Error&) {
    return Json(Json::value_t::discarded);
  }
  return Json::parse(text, nullptr, false);
}

using Check = bool (*)(const Json&);

bool is_text(const Json& json) { return json.is_string(); }
bool is_number(const Json& json) { return json.is_number(); }
bool is_whole_number(const Json& json) { return json.is_number_integer(); }
bool is_flag(const Json& json) { return json.is_boolean(); }

// An object in which what is there of these is of its kind.
bool has_kinds(const Json& json, std::initializer_list<std::pair<const char*, Check>> kinds) {
  return json.is_object() && std::all_of(kinds.begin(), kinds.end(), [&](const auto& kind) {
           const auto found = json.find(kind.first);
           return found == json.end() || kind.second(*found);
         });
}

bool all_are(const Json& json, Check check) { return std::all_of(json.begin(), json.end(), check); }

bool is_input(const Json& json) {
  return has_kinds(json, {{"path", is_text}, {"digest", is_text}, {"step", is_text}});
}
bool is_need(const Json& json) { return has_kinds(json, {{"key", is_text}, {"output", is_text}}); }
bool is_extent(const Json& json) {
  return has_kinds(json, {{"path", is_text}, {"files", is_whole_number}, {"bytes", is_whole_number}});
}
bool is_file(const Json& json) {
  return has_kinds(json, {{"path", is_text},
                          {"link", is_text},
                          {"digest", is_text},
                          {"bytes", is_whole_number},
                          {"runs", is_flag}});
}

constexpr std::initializer_list<std::pair<const char*, Check>> kRecordKinds = {
    {"step", is_text},
    {"key", is_text},
    {"start", is_text},
    {"end", is_text},
    {"host", is_text},
    {"token", is_text},
    {"seconds", is_number},
    {"attempts", is_whole_number},
    {"output", is_extent},
    {"inputs", [](const Json& json) { return json.is_array() && all_are(json, is_input); }},
    {"needs", [](const Json& json) { return json.is_object() && all_are(json, is_need); }},
    {"metrics", [](const Json& json) { return json.is_object() && all_are(json, is_number); }},
    {"files", [](const Json& json) { return json.is_array() && all_are(json, is_file); }}};

std::string dumped(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void add_numbers(const Json& json, const std::string& name, Json& numbers) {
  if (json.is_boolean()) numbers[name] = json.get<bool>() ? 1 : 0;
  if (json.is_number()) numbers[name] = json;
  if (!json.is_object()) return;
  for (const auto& [key, value] : json.items())
    add_numbers(value, name.empty() ? key : name + "." + key, numbers);
}

fs::path link_place(const Plan& plan, size_t step) { return plan.folder() / plan.graph.steps[step].out; }

// What the link of a step says: the way from its directory to the output.
fs::path link_text(const Plan& plan, size_t step) {
  const fs::path output = fs::absolute(plan.folder() / plan.work[step].output).lexically_normal();
  return output.lexically_relative(fs::absolute(link_place(plan, step)).lexically_normal().parent_path());
}

bool leads_into_store(const Plan& plan, const fs::path& link) {
  std::error_code error;
  const fs::path target = link.parent_path() / fs::read_symlink(link, error);
  const fs::path below =
      fs::weakly_canonical(target, error).lexically_relative(fs::weakly_canonical(plan.store(), error));
  return !error && !below.empty() && *below.begin() != "..";
}

}  // namespace

Extent extent_of(const fs::path& path) {
  if (!fs::is_directory(path)) return {1, static_cast<int64_t>(fs::file_size(path))};
  Extent extent;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    ++extent.files;
    extent.bytes += static_cast<int64_t>(entry.file_size());
  }
  return extent;
}

std::optional<Json> parse_record(const std::string& text) {
  Json record = parsed(text);
  if (!has_kinds(record, kRecordKinds) || !record.contains("step") || !record.contains("key"))
    return std::nullopt;
  return record;
}

std::optional<Json> read_record(const Plan& plan, size_t step) {
  const fs::path file = plan.home(step) / kRecord;
  if (!is_there(file)) return std::nullopt;
  std::optional<Json> record = parse_record(read_text(file));
  if (!record || record->at("key") != plan.work[step].key) return std::nullopt;
  const std::string& output = plan.work[step].output;
  if (!output.empty() && !is_there(plan.folder() / output)) return std::nullopt;
  return record;
}

Attempt read_attempt(const Plan& plan, size_t step) {
  const fs::path file = plan.home(step) / kAttempt;
  if (!is_there(file)) return {};
  const Json json = parsed(read_text(file));
  if (!has_kinds(json, {{"number", is_whole_number},
                        {"start", is_text},
                        {"runner", is_whole_number},
                        {"failure", is_text}}))
    return {};
  return {json.value("number", int64_t{0}), json.value("start", ""), json.value("runner", pid_t{0}),
          json.value("failure", "")};
}

// Not synced: after a power cut, a wrong number of attempts is no harm.
void write_attempt(const Plan& plan, size_t step, const Attempt& attempt) {
  const Json json = {{"number", attempt.number},
                     {"start", attempt.start},
                     {"runner", attempt.runner},
                     {"failure", attempt.failure}};
  const fs::path file = plan.home(step) / kAttempt;
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream << dumped(json);
  if (!stream.flush()) throw IoError("{}: cannot be written", file.string());
}

void write_record(const Plan& plan, size_t step, const Attempt& attempt, double seconds,
                  const std::string& version) {
  const Step& of = plan.graph.steps[step];
  const Work& work = plan.work[step];
  Json inputs = Json::array(), needs = Json::object();
  for (size_t at = 0; at < of.inputs.size(); ++at) {
    Json input = {{"path", of.inputs[at].path}};
    if (of.inputs[at].step < 0) {
      input["digest"] = work.digests[at];
    } else {
      input["step"] = plan.graph.steps[static_cast<size_t>(of.inputs[at].step)].name;
    }
    inputs.push_back(std::move(input));
  }
  for (int other : of.needs) {
    const Work& needed = plan.work[static_cast<size_t>(other)];
    needs[plan.graph.steps[static_cast<size_t>(other)].name] = {{"key", needed.key},
                                                                {"output", needed.output}};
  }
  Json record = {{"step", of.name},         {"key", work.key},
                 {"command", work.command}, {"values", of.values},
                 {"inputs", inputs},        {"needs", needs},
                 {"start", attempt.start},  {"end", utc_time()},
                 {"seconds", seconds},      {"attempts", attempt.number},
                 {"host", hostname()},      {"version", version}};
  if (of.spec->shell) record["variables"] = work.environment;
  if (const std::optional<JobNote> note = read_note(plan.home(step) / kJobNote)) {
    record["job"] = {{"on", name_of(note->where)}, {"id", note->id}};
    if (const std::optional<JobEnd> end = read_end(plan.home(step) / kJobNote, *note))
      record["host"] = end->host;
  }
  if (!work.output.empty()) {
    const fs::path output = plan.folder() / work.output;
    const Extent extent = extent_of(output);
    record["output"] = {{"path", work.output}, {"files", extent.files}, {"bytes", extent.bytes}};
    record["metrics"] = metrics_of(output);
  }
  write_atomically(plan.home(step) / kRecord, dumped(record));
}

Json metrics_of(const fs::path& output) {
  const fs::path file = fs::is_directory(output) ? output / "summary.json" : output;
  Json numbers = Json::object();
  std::error_code error;
  if (!fs::is_regular_file(file, error) || static_cast<int64_t>(fs::file_size(file, error)) > kMostMetrics)
    return numbers;
  std::string text = read_text(file);
  Json json = parsed(text);
  if (!json.is_object()) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
    json = parsed(text.substr(text.find_last_of('\n') + 1));
  }
  if (json.is_object()) add_numbers(json, "", numbers);
  return numbers;
}

void link_output(const Plan& plan, size_t step) {
  if (plan.work[step].output.empty()) return;
  const fs::path link = link_place(plan, step), text = link_text(plan, step);
  std::error_code error;
  if (fs::read_symlink(link, error) == text) return;
  fs::create_directories(link.parent_path());
  const fs::path beside =
      link.parent_path() / fmt::format(".{}.link-{}", link.filename().string(), ::getpid());
  fs::remove(beside, error);
  fs::create_symlink(text, beside);
  fs::rename(beside, link);
}

void unlink_output(const Plan& plan, size_t step) {
  if (plan.work[step].output.empty()) return;
  const fs::path link = link_place(plan, step);
  if (fs::is_symlink(fs::symlink_status(link)) && leads_into_store(plan, link)) fs::remove(link);
}

void check_links(const Plan& plan) {
  for (size_t step = 0; step < plan.work.size(); ++step) {
    if (plan.work[step].output.empty()) continue;
    const fs::path link = link_place(plan, step);
    std::error_code error;
    const fs::file_status status = fs::symlink_status(link, error);
    if (!fs::exists(status) || (fs::is_symlink(status) && leads_into_store(plan, link))) continue;
    throw ConfigError(
        "{}: out: {} is there already, and no link that a pipeline made; move it away, or name another `out`",
        plan.graph.steps[step].spec->place, in_quotes(plan.graph.steps[step].out));
  }
}

}  // namespace tandem::pipeline
