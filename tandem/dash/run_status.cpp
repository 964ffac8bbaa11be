#include "tandem/dash/run_status.h"

#include <fmt/format.h>

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <limits>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/dash/run_list.h"

namespace tandem::dash {
namespace {

constexpr double kSilent = 30;  // seconds without a word

double number(const Json& object, const char* key, double otherwise = 0) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

std::string text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool is_process(double pid) {
  return pid >= 1 && pid < std::numeric_limits<pid_t>::max() &&
         (::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM);
}

bool is_under_way(const std::string& state) { return state == "starting" || state == "running"; }

std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

// "all_gather of block 5 for 6 s, waits for rank 3"
std::string doing(const Json& rank) {
  std::string words = text(rank, "command");
  if (words.empty()) return "";
  if (rank.contains("block") && rank["block"].is_number())
    words += fmt::format(" of block {}", number(rank, "block"));
  if (number(rank, "since_s") >= 1) words += fmt::format(" for {:.0f} s", number(rank, "since_s"));
  if (!rank.contains("waiting_for") || !rank["waiting_for"].is_array()) return words;
  std::string others;
  for (const Json& other : rank["waiting_for"])
    if (other.is_number()) others += fmt::format("{}{}", others.empty() ? "" : ", ", other.get<int64_t>());
  return others.empty() ? words : fmt::format("{}, waits for {}", words, others);
}

std::string rank_table(const Json& ranks) {
  std::vector<std::vector<std::string>> table = {{"rank", "node", "step", "state", "ms a step", "busy",
                                                  "waits for ranks", "for data", "memory", "doing"}};
  for (const Json& rank : ranks) {
    if (!rank.is_object()) continue;
    const double device = number(rank, "device_bytes");
    table.push_back(
        {fmt::format("{}", number(rank, "rank")), text(rank, "node"), fmt::format("{}", number(rank, "step")),
         text(rank, "state"), fmt::format("{:.1f}", number(rank, "step_ms")),
         percent(number(rank, "compute")), percent(number(rank, "wait")), percent(number(rank, "data_wait")),
         format_bytes(static_cast<int64_t>(device > 0 ? device : number(rank, "rss_bytes"))), doing(rank)});
  }
  std::string lines;
  for (const auto& row : table) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      size_t width = 0;
      for (const auto& other : table) width = std::max(width, other[i].size());
      line += fmt::format("{:<{}}  ", row[i], width);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines += line + "\n";
  }
  return lines;
}

}  // namespace

Json run_status(const RunFolder& run) {
  if (!RunFolder::is_run(run.path()))
    throw DataError("{}: no run; expected a run's directory, as `tandem train` writes it",
                    run.path().string());
  const bool locked = is_trained_here(run.path());
  const Json row = list_row(run.path().lexically_normal().string(), run, locked);
  Json status = run.object("status.json");
  if (!status.is_object()) {
    status = row;
    status["alive"] = locked ? Json(true) : Json();
    return status;
  }
  const bool here = text(status, "host") == hostname();
  const double age = static_cast<double>(std::time(nullptr)) - number(row, "updated");
  // On a file system without locks, who has written a moment ago and still is there.
  const bool lives = locked || (here && age <= kSilent && is_process(number(status, "pid")));
  status["alive"] = lives ? Json(true) : here ? Json(false) : Json();
  if (!is_under_way(text(status, "state"))) return status;
  if (!lives && here) status["state"] = "killed";
  if (!lives && !here && age > kSilent) status["state"] = "silent";
  return status;
}

bool has_ended(const Json& status) {
  const std::string state = text(status, "state");
  return !is_under_way(state) && state != "silent";
}

std::string status_text(const Json& status) {
  const double step = number(status, "step"), of = number(status, "of");
  const std::string name = status.contains("run") ? text(status, "run") : text(status, "id");
  std::string first = fmt::format("{}: {}", name, text(status, "state"));
  if (!text(status, "message").empty()) first += fmt::format(" ({})", text(status, "message"));
  first += fmt::format(", step {} of {}", step, of);
  if (of > 0) first += fmt::format(" ({:.1f}%)", 100 * step / of);
  if (status.contains("eta_s") && status["eta_s"].is_number())
    first += fmt::format(", {} left", format_duration(number(status, "eta_s")));
  std::vector<std::string> facts;
  if (status.contains("loss")) facts.push_back("loss " + format_loss(number(status, "loss", NAN)));
  if (status.contains("eval_loss"))
    facts.push_back("eval loss " + format_loss(number(status, "eval_loss", NAN)));
  for (const char* key : {"tokens_per_s", "samples_per_s"}) {
    if (status.contains(key))
      facts.push_back(fmt::format("{} {}/s", format_count(number(status, key)),
                                  std::string(key, std::find(key, key + 7, '_'))));
  }
  if (number(status, "mfu") > 0) facts.push_back(fmt::format("MFU {:.1f}%", 100 * number(status, "mfu")));
  if (number(status, "last_checkpoint") > 0)
    facts.push_back(fmt::format("last checkpoint step {}", number(status, "last_checkpoint")));
  if (!text(status, "host").empty())
    facts.push_back(
        fmt::format("process {} on {}{}", number(status, "pid"), text(status, "host"),
                    status["alive"] == Json(false) && is_under_way(text(status, "state")) ? " (gone)" : ""));
  std::string second;
  for (const std::string& fact : facts) second += (second.empty() ? "" : ", ") + fact;
  std::string lines = first + "\n" + (second.empty() ? "" : second + "\n");
  if (status.contains("ranks") && status["ranks"].is_array() && status["ranks"].size() > 1)
    lines += rank_table(status["ranks"]);
  return lines;
}

}  // namespace tandem::dash
