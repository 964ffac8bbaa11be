#include "tandem/launch/places/hang_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/system.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Whole or not at all.
void put_file(const fs::path& path, const std::string& text) {
  const fs::path draft = path.parent_path() / fmt::format(".{}.{}", path.filename().string(), ::getpid());
  std::ofstream file(draft, std::ios::trunc);
  file << text;
  file.close();
  std::error_code error;
  if (file) fs::rename(draft, path, error);
  if (file && !error) return;
  fs::remove(draft, error);
  throw IoError("{}: cannot be written", path.string());
}

Json facts_of(const Verdict& verdict) {
  Json json = {{"kind", verdict.kind}, {"rank", verdict.rank}, {"node", verdict.place.node}};
  const nlohmann::json place = to_json(verdict.place);
  for (const auto& [key, value] : place.items()) {
    if (key != "rank" && key != "node" && key != "state" && key != "waiting_for" && key != "since_s")
      json[key] = value;
  }
  json["for_s"] = verdict.for_s;
  json["waiters"] = verdict.waiters;
  return json;
}

fs::path free_name(const fs::path& directory, int64_t step) {
  fs::path path = directory / fmt::format("step-{}.json", step);
  for (int again = 2; fs::exists(path); ++again)
    path = directory / fmt::format("step-{}-{}.json", step, again);
  return path;
}

std::string describe_hang(const Verdict& verdict, const std::string& node) {
  Json json = {{"verdict", verdict.line}, {"time", utc_time()}};
  json.update(facts_of(verdict));
  json["ranks"] = Json::array();
  for (const Whereabouts& place : verdict.ranks) {
    Json entry = to_json(place);
    if (place.node == node && place.pid > 0) entry["threads"] = thread_stacks(static_cast<pid_t>(place.pid));
    json["ranks"].push_back(std::move(entry));
  }
  return text_of(json, 1);
}

// One write of one line: rank 0 may write at the same time.
void append_event(const fs::path& run_dir, const Verdict& verdict, const std::string& file) {
  Json json = {{"time", utc_time()}, {"type", "verdict"}, {"message", verdict.line}};
  json.update(facts_of(verdict));
  if (!file.empty()) json["file"] = file;
  const fs::path path = run_dir / "events.jsonl";
  const std::string line = text_of(json, -1);
  const int fd = open_regular(path, O_WRONLY | O_CREAT | O_APPEND);
  const ssize_t written = ::write(fd, line.data(), line.size());
  ::close(fd);
  if (written != static_cast<ssize_t>(line.size()))
    throw IoError("{}: cannot write: {}", path.string(), std::strerror(errno));
}

void change_status(const fs::path& run_dir, const Verdict& verdict) {
  std::ifstream file(run_dir / "status.json");
  Json status = Json::parse(file, nullptr, false);
  if (!status.is_object() || !status.contains("ranks") || !status["ranks"].is_array()) return;
  status["message"] = verdict.line;
  for (const Whereabouts& place : verdict.ranks) {
    Json* found = nullptr;
    for (Json& entry : status["ranks"]) {
      if (entry.is_object() && entry.value("rank", -1) == place.rank) found = &entry;
    }
    if (found == nullptr) found = &status["ranks"].emplace_back(Json::object());
    const nlohmann::json known = to_json(place);
    for (const char* key : {"rank", "step", "state", "command", "block", "waiting_for", "since_s"})
      (*found)[key] = known[key];
  }
  put_file(run_dir / "status.json", text_of(status, -1));
}

}  // namespace

VerdictRecord::VerdictRecord(Verdict verdict, const std::string& node)
    : verdict_(std::move(verdict)), hang_(verdict_.is_slow() ? "" : describe_hang(verdict_, node)) {}

fs::path VerdictRecord::write_hang(const fs::path& run_dir) const {
  fs::create_directories(run_dir / "hangs");
  const fs::path path = free_name(run_dir / "hangs", verdict_.place.step);
  put_file(path, hang_);
  return path.lexically_relative(run_dir);
}

bool VerdictRecord::write(const fs::path& run_dir) const {
  std::error_code error;
  if (run_dir.empty() || !fs::is_directory(run_dir, error)) return false;
  append_event(run_dir, verdict_, hang_.empty() ? "" : write_hang(run_dir).string());
  if (!verdict_.is_slow()) change_status(run_dir, verdict_);
  return true;
}

}  // namespace tandem
