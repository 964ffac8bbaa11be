#include "tandem/dash/run_list.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <fstream>
#include <set>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/dash/series.h"

namespace tandem::dash {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 3;
constexpr size_t kMostRuns = 2000;
constexpr double kFresh = 30;  // seconds since the last row of a run that nobody is known to train

// The files that processes of this machine hold locks on, as the kernel names them. A run's directory is
// among them while it trains; asking for the lock instead could take it from a run that is just starting.
std::set<std::string> locked_files() {
  std::set<std::string> files;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, mode, pid, file;
    if (words >> number >> kind >> advisory >> mode >> pid >> file && kind == "FLOCK") files.insert(file);
  }
  return files;
}

std::string lock_name(const fs::path& path) {
  struct stat entry {};
  if (::stat(path.c_str(), &entry) != 0) return "";
  return fmt::format("{:02x}:{:02x}:{}", major(entry.st_dev), minor(entry.st_dev), entry.st_ino);
}

double changed_at(const fs::path& path) {
  struct stat entry {};
  if (::stat(path.c_str(), &entry) != 0) return 0;
  return static_cast<double>(entry.st_mtim.tv_sec) + 1e-9 * static_cast<double>(entry.st_mtim.tv_nsec);
}

std::string stamp_of(const fs::path& run, bool locked) {
  std::string stamp = locked ? "locked" : "";
  for (const char* name : {"metrics.jsonl", "events.jsonl", "config.yaml", "summary.json"}) {
    struct stat entry {};
    if (::stat((run / name).c_str(), &entry) != 0) continue;
    stamp += fmt::format(" {}:{}:{}.{}", name, entry.st_size, entry.st_mtim.tv_sec, entry.st_mtim.tv_nsec);
  }
  return stamp;
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

std::string state_of(const RunFolder& run, const std::string& last_event, bool locked) {
  if (locked) return "running";
  if (last_event == "end" || (last_event != "start" && run.file("summary.json"))) return "done";
  if (last_event == "diverged") return "diverged";
  if (last_event == "interrupt" || last_event == "budget") return "interrupted";
  const double age = static_cast<double>(std::time(nullptr)) - changed_at(run.path() / "metrics.jsonl");
  return age < kFresh ? "running" : "stopped";
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace

bool is_trained_here(const fs::path& path) { return locked_files().contains(lock_name(path)); }

Json list_row(const std::string& id, const RunFolder& run, bool is_locked) {
  Json row = {{"id", id}};
  std::string last_event;
  for (const Json& event : run.events(400)) {
    last_event = event["type"].get<std::string>();
    if (last_event == "eval" && event.contains("eval_loss")) row["eval_loss"] = event["eval_loss"];
  }
  row["state"] = state_of(run, last_event, is_locked);
  const std::string rows = run.tail("metrics.jsonl", 8192);
  const size_t end = rows.rfind('\n');
  if (end != std::string::npos) {
    const size_t begin = rows.rfind('\n', end == 0 ? 0 : end - 1);
    const size_t first = begin == std::string::npos || begin == end ? 0 : begin + 1;
    read_row(std::string_view(rows).substr(first, end - first), [&](std::string_view name, double value) {
      if (name == "step" || name == "loss" || name == "mfu") row[std::string(name)] = number_or_null(value);
      if (name == "tokens_per_s" || name == "samples_per_s") {
        row["rate"] = number_or_null(value);
        row["unit"] = name.substr(0, name.find('_'));
      }
    });
  }
  for (const auto& [key, value] : run.config()) {
    if (key == "train.steps") row["of"] = number_or_null(std::strtod(value.c_str(), nullptr));
  }
  row["updated"] =
      std::max(changed_at(run.path() / "metrics.jsonl"), changed_at(run.path() / "events.jsonl"));
  return row;
}

RunList::RunList(std::vector<fs::path> roots) {
  for (const fs::path& root : roots) {
    std::error_code error;
    const fs::path place = fs::canonical(root, error);
    if (error || !fs::is_directory(place))
      throw DataError("{}: no such folder; expected a run's directory or a folder of runs", root.string());
    roots_.push_back(place);
  }
}

const RunFolder* RunList::find(const std::string& name) const {
  const auto found = runs_.find(name);
  return found == runs_.end() ? nullptr : &found->second;
}

void RunList::look_into(const fs::path& root, const fs::path& folder, int depth) {
  if (runs_.size() >= kMostRuns) return;
  if (RunFolder::is_run(folder)) {
    std::string name = folder == root ? root.filename().string() : folder.lexically_relative(root).string();
    if (runs_.contains(name) && runs_.at(name).path() != folder) name = folder.string();
    runs_.emplace(name, RunFolder(folder));
    return;
  }
  if (depth == kDeepest) return;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, fs::directory_options::skip_permission_denied, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code failed;
    if (entry->path().filename().string().starts_with('.') || !entry->is_directory(failed)) continue;
    const fs::path place = entry->is_symlink(failed) ? fs::canonical(entry->path(), failed) : entry->path();
    if (!failed && is_inside(place, root)) look_into(root, place, depth + 1);
  }
}

void RunList::refresh() {
  const auto now = std::chrono::steady_clock::now();
  if (refreshed_.time_since_epoch().count() != 0 && now - refreshed_ < std::chrono::milliseconds(900)) return;
  runs_.clear();
  for (const fs::path& root : roots_) look_into(root, root, 0);
  const std::set<std::string> locked = locked_files();
  std::vector<const Json*> rows;
  std::erase_if(known_, [&](const auto& entry) { return !runs_.contains(entry.first); });
  for (const auto& [id, run] : runs_) {
    const bool is_locked = locked.contains(lock_name(run.path()));
    const std::string stamp = stamp_of(run.path(), is_locked);
    Known& known = known_[id];
    if (known.stamp != stamp || known.row.value("state", "") == "running")
      known = {stamp, list_row(id, run, is_locked)};
    rows.push_back(&known.row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Json* a, const Json* b) {
    return (*a)["updated"].get<double>() > (*b)["updated"].get<double>();
  });
  rows_ = Json::array();
  for (const Json* row : rows) rows_.push_back(*row);
  refreshed_ = std::chrono::steady_clock::now();
}

}  // namespace tandem::dash
