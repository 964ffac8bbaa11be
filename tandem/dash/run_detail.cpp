#include "tandem/dash/run_detail.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tandem/config/keys.h"
#include "tandem/dash/series.h"

namespace tandem::dash {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEvents = 1000;
constexpr size_t kMostRanks = 1024;
constexpr int64_t kMostManifest = 16 << 20;
constexpr size_t kMostDigests = 20;  // of the newest checkpoints
constexpr int64_t kRankTail = 8192;  // some 50 steps

// As the run's config.yaml writes a value, which is JSON but for words.
std::string plain(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string unquoted(const std::string& value) {
  return value.size() >= 2 && value.front() == '"' && value.back() == '"' ? value.substr(1, value.size() - 2)
                                                                          : value;
}

bool same_value(const std::string& a, const std::string& b) {
  if (a == b) return true;
  char *end_a = nullptr, *end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  return !a.empty() && !b.empty() && *end_a == '\0' && *end_b == '\0' && x == y;
}

Json config_rows(const RunFolder& run) {
  static const Config kDefaults;
  Json rows = Json::array();
  for (const auto& [key, written] : run.config()) {
    const std::string value = unquoted(written);
    Json row = {{"key", key}, {"value", value}};
    if (const Key* known = find_key(key)) {
      const std::string usual = plain(known->read(kDefaults));
      row["doc"] = known->doc;
      row["default"] = usual;
      row["set"] = !same_value(value, usual);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// Without the commands, which are most of it.
Json plan_of(const RunFolder& run) {
  const std::string text = run.text("plan.json", kMostPlan);
  const auto keep = [](int depth, Json::parse_event_t event, Json& parsed) {
    return !(depth == 1 && event == Json::parse_event_t::key &&
             (parsed == "executables" || parsed == "persistents"));
  };
  Json plan = Json::parse(text, keep, /*allow_exceptions=*/false);
  return plan.is_object() ? plan : Json();
}

// The last row of a rank, and the mean times of those before it.
Json rank_row(int rank, const std::string& rows) {
  Json last = {{"rank", rank}};
  double sum_ms = 0, sum_wait = 0, sum_comm = 0;
  int64_t count = 0;
  for (size_t begin = 0, end; (end = rows.find('\n', begin)) != std::string::npos; begin = end + 1) {
    Json row = {{"rank", rank}};
    double ms = 0, wait = 0, comm = 0;
    const auto visit = [&](std::string_view name, double value) {
      if (name == "step_ms") ms = value;
      if (name == "data_wait_ms") wait = value;
      if (name == "comm_wait_ms") comm = value;
      if (std::isfinite(value) && row.size() < 16) row[std::string(name)] = value;
    };
    if (!read_row(std::string_view(rows).substr(begin, end - begin), visit)) continue;
    last = std::move(row);
    sum_ms += ms;
    sum_wait += wait;
    sum_comm += comm;
    ++count;
  }
  if (count > 0) {
    last["step_ms"] = sum_ms / static_cast<double>(count);
    last["data_wait_ms"] = sum_wait / static_cast<double>(count);
    last["comm_wait_ms"] = sum_comm / static_cast<double>(count);
  }
  return last;
}

Json rank_rows(const RunFolder& run) {
  std::vector<int> ranks;
  std::error_code error;
  for (auto entry = fs::directory_iterator(run.path() / "logs", error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    constexpr std::string_view kPrefix = "rank-";
    int rank = 0;
    if (!name.starts_with(kPrefix) || !name.ends_with(".jsonl")) continue;
    const char* end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + kPrefix.size(), end, rank);
    if (read.ec == std::errc() && std::string_view(read.ptr) == ".jsonl") ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  Json rows = Json::array();
  for (int rank : ranks) {
    if (rows.size() < kMostRanks)
      rows.push_back(rank_row(rank, run.tail(fmt::format("logs/rank-{}.jsonl", rank), kRankTail)));
  }
  return rows;
}

// Where each rank is and what it does, as status.json says it while the run trains.
void add_places(const Json& status, Json& rows) {
  if (!status.is_object() || !status.contains("ranks") || !status["ranks"].is_array()) return;
  for (const Json& place : status["ranks"]) {
    if (!place.is_object()) continue;
    for (Json& row : rows) {
      if (row["rank"] != place.value("rank", Json())) continue;
      for (const char* key : {"node", "pid", "state", "command", "block", "waiting_for", "since_s"}) {
        if (place.contains(key)) row[key] = place[key];
      }
    }
  }
}

// The digest that the manifest has of itself, and with it of every tensor; empty where the checkpoint is
// gone.
std::string digest_of(const RunFolder& run, int64_t step) {
  const std::string text = run.text(fmt::format("checkpoints/step-{:08}/manifest.json", step), kMostManifest);
  constexpr std::string_view kKey = "\n \"digest\": \"";  // those of tensors stand further in
  const size_t key = text.find(kKey);
  if (key == std::string::npos) return "";
  return text.substr(key + kKey.size(), text.find('"', key + kKey.size()) - key - kKey.size());
}

}  // namespace

Json run_detail(const RunFolder& run) {
  Json events = Json::array(), checkpoints = Json::array();
  for (Json& event : run.events(kMostEvents)) {
    if (event["type"] == "checkpoint") checkpoints.push_back(event);
    events.push_back(std::move(event));
  }
  for (size_t i = checkpoints.size() - std::min(checkpoints.size(), kMostDigests); i < checkpoints.size();
       ++i) {
    const Json step = checkpoints[i].value("step", Json());
    if (step.is_number_integer()) checkpoints[i]["digest"] = digest_of(run, step);
  }
  Json ranks = rank_rows(run);
  add_places(run.object("status.json"), ranks);
  return {{"path", run.path().string()},
          {"config", config_rows(run)},
          {"history", run.config_history()},
          {"summary", run.object("summary.json")},
          {"plan", plan_of(run)},
          {"events", std::move(events)},
          {"checkpoints", std::move(checkpoints)},
          {"ranks", std::move(ranks)}};
}

}  // namespace tandem::dash
