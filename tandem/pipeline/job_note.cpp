#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/json_text.h"
#include "tandem/pipeline/cluster_job.h"
#include "tandem/pipeline/job_end.h"

namespace tandem::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnd = "job-end.json";

Json json_in(const fs::path& file) {
  if (!is_there(file)) return Json();
  const std::string text = read_text(file);
  try {
    check_json_depth(text, "");
  } catch (const Error&) {
    return Json();
  }
  return Json::parse(text, nullptr, false);
}

fs::path end_of(const fs::path& note_file) { return note_file.parent_path() / kEnd; }

}  // namespace

std::optional<JobNote> read_note(const fs::path& file) {
  const Json json = json_in(file);
  if (!json.is_object()) return std::nullopt;
  try {
    JobNote note;
    note.where = json.at("where") == name_of(Where::Slurm) ? Where::Slurm : Where::Kubernetes;
    note.name = json.at("name");
    note.id = json.at("id");
    note.attempt = json.at("attempt");
    note.folder = json.at("folder");
    note.command = json.at("command").get<std::vector<std::string>>();
    note.environment = json.at("environment").get<std::vector<std::string>>();
    note.output = json.at("output");
    note.log = json.at("log");
    note.captures = json.at("captures");
    note.keeps = json.at("keeps");
    note.script = json.at("script");
    note.object = json.at("object");
    note.context = json.at("context");
    if (note.command.empty()) return std::nullopt;
    return note;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

void write_note(const fs::path& file, const JobNote& note) {
  const Json json = {{"where", name_of(note.where)},    {"name", note.name},      {"id", note.id},
                     {"attempt", note.attempt},         {"folder", note.folder},  {"command", note.command},
                     {"environment", note.environment}, {"output", note.output},  {"log", note.log},
                     {"captures", note.captures},       {"keeps", note.keeps},    {"script", note.script},
                     {"object", note.object},           {"context", note.context}};
  try {
    write_atomically(file, json.dump(1) + "\n");
  } catch (const nlohmann::json::exception&) {
    throw ConfigError("{}: words and paths of a step on a cluster have to be UTF-8", note.name);
  }
}

std::optional<JobEnd> read_end(const fs::path& note_file, const JobNote& note) {
  const Json json = json_in(end_of(note_file));
  if (!json.is_object() || json.value("attempt", int64_t{0}) != note.attempt) return std::nullopt;
  return JobEnd{json.value("code", 1), json.value("host", "")};
}

void write_end(const fs::path& note_file, const JobNote& note, const JobEnd& end) {
  const Json json = {{"attempt", note.attempt}, {"code", end.code}, {"host", end.host}};
  write_atomically(end_of(note_file), json.dump() + "\n");
}

void remove_end(const fs::path& note_file) {
  std::error_code error;
  fs::remove(end_of(note_file), error);
}

}  // namespace tandem::pipeline
