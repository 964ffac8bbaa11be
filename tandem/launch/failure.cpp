#include "tandem/launch/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <functional>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr double kTogether_s = 1.0;
constexpr double kLongStop_s = 1.0;  // nobody gives up a peer sooner
constexpr std::string_view kErrorPrefix = "tandem: error: ";

bool is_alike(const RankEnd& a, const RankEnd& b) {
  return a.exit_code == b.exit_code && a.signal == b.signal && a.lost_peer == b.lost_peer &&
         (a.stopped != 0) == (b.stopped != 0) && a.last_line() == b.last_line();
}

std::vector<int> ranks_like(const RankEnd& end, std::span<const RankEnd> ends) {
  std::vector<int> ranks = {end.rank};
  for (const RankEnd& other : ends) {
    if (other.rank != end.rank && other.failed() && !other.told && is_alike(other, end))
      ranks.push_back(other.rank);
  }
  return ranks;
}

// The first of those ends of which `holds` is true; null where there is none.
const RankEnd* earliest(std::span<const RankEnd> ends, const std::function<bool(const RankEnd&)>& holds) {
  const RankEnd* first = nullptr;
  for (const RankEnd& end : ends) {
    if (holds(end) && (first == nullptr || end.at_s < first->at_s)) first = &end;
  }
  return first;
}

// The first to fail of those that missed no peer.
const RankEnd* first_fault(std::span<const RankEnd> ends) {
  const auto is_fault = [](const RankEnd& end) { return end.failed() && !end.told && !end.lost_peer; };
  const RankEnd* first = earliest(ends, is_fault);
  if (first == nullptr || is_own_fault(*first)) return first;
  const RankEnd* stronger = earliest(ends, [&](const RankEnd& end) {
    return is_fault(end) && is_own_fault(end) && end.at_s <= first->at_s + kTogether_s;
  });
  return stronger != nullptr ? stronger : first;
}

// A rank that obeys SIGTERM dies of it, or says that it does (128 + signal).
bool failed_by_itself_when_told(const RankEnd& end) {
  return end.told && end.failed() && end.signal == 0 && end.exit_code <= 128 && !end.lost_peer;
}

std::string with_line(std::string text, const RankEnd& end) {
  const std::string line = end.last_line();
  return line.empty() ? text : text + ": " + line;
}

}  // namespace

bool RankEnd::failed() const {
  return signal != 0 || (exit_code != 0 && exit_code != static_cast<int>(ExitCode::Interrupted) &&
                         exit_code != kBudgetReached);
}

bool RankEnd::has_error_line() const {
  return message.empty() && !last_lines.empty() && last_lines.back().starts_with(kErrorPrefix);
}

bool RankEnd::is_final() const { return is_ours && signal == 0 && stopped == 0 && is_final_code(exit_code); }

int RankEnd::code() const { return is_final() ? exit_code : static_cast<int>(ExitCode::Failed); }

std::string RankEnd::last_line() const {
  if (!message.empty()) return message;
  if (last_lines.empty()) return "";
  return has_error_line() ? last_lines.back().substr(kErrorPrefix.size()) : last_lines.back();
}

bool is_final_code(int exit_code) {
  return exit_code == static_cast<int>(ExitCode::BadUsage) ||
         exit_code == static_cast<int>(ExitCode::DoesNotFit) ||
         exit_code == static_cast<int>(ExitCode::BadData);
}

bool was_interrupted(const RankEnd& end) {
  return end.signal == 0 && end.exit_code == static_cast<int>(ExitCode::Interrupted);
}

// A program that is surprised by a lost peer may well abort or write into a closed pipe.
bool is_own_fault(const RankEnd& end) {
  if (!end.hinders.empty() || !end.waits.empty()) return true;
  constexpr std::array<int, 5> kOwn = {SIGKILL, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
  if (end.signal != 0) return std::find(kOwn.begin(), kOwn.end(), end.signal) != kOwn.end();
  return end.is_final();
}

const RankEnd* root_cause(std::span<const RankEnd> ends) {
  for (const RankEnd& end : ends) {
    if (!end.hinders.empty() || !end.waits.empty()) return &end;
  }
  const RankEnd* fault = first_fault(ends);
  const RankEnd* stopped = earliest(ends, [&](const RankEnd& end) {
    return end.stopped != 0 && (fault == nullptr || end.stopped_at_s + kLongStop_s <= fault->at_s);
  });
  if (fault != nullptr) return stopped != nullptr && !is_own_fault(*fault) ? stopped : fault;
  const RankEnd* missed =
      earliest(ends, [](const RankEnd& end) { return end.failed() && !end.told && end.lost_peer; });
  if (missed == nullptr) return nullptr;
  if (stopped != nullptr) return stopped;
  const RankEnd* slow = earliest(ends, failed_by_itself_when_told);
  return slow != nullptr ? slow : missed;
}

std::string describe_ranks(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += fmt::format("{}{}", last > i + 1 ? "-" : ", ", ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string describe_signal(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

std::string describe_exit(const RankEnd& end) {
  if (end.signal == 0) return fmt::format("exit code {}", end.exit_code);
  return fmt::format("signal {} ({})", end.signal, describe_signal(end.signal));
}

std::string describe_end(const RankEnd& root, std::span<const RankEnd> ends) {
  if (!root.waits.empty()) return root.waits;
  if (root.stopped != 0)
    return fmt::format("rank {} was stopped ({})", root.rank, describe_signal(root.stopped));
  if (!root.hinders.empty()) return fmt::format("rank {} was stuck {}", root.rank, root.hinders);
  return fmt::format("{} failed with {}", describe_ranks(ranks_like(root, ends)), describe_exit(root));
}

std::string describe_failure(const RankEnd& root, std::span<const RankEnd> ends) {
  if (!root.hinders.empty() || !root.waits.empty()) return describe_end(root, ends);
  return with_line(describe_end(root, ends), witness(root, ends));
}

std::vector<std::string> describe_others(const RankEnd* root, std::span<const RankEnd> ends) {
  std::vector<std::string> lines;
  std::vector<int> killed, missed_a_peer;
  std::vector<const RankEnd*> told_of;
  if (root != nullptr) told_of.push_back(root);
  for (const RankEnd& end : ends) {
    if (end.killed) killed.push_back(end.rank);
    if (end.stopped != 0 && (root == nullptr || end.rank != root->rank))
      lines.push_back(
          fmt::format("rank {} was stopped ({}) by then", end.rank, describe_signal(end.stopped)));
    if (!end.failed() || end.told) continue;
    const bool known = std::any_of(told_of.begin(), told_of.end(),
                                   [&](const RankEnd* other) { return is_alike(*other, end); });
    if (known) continue;
    if (end.lost_peer) {
      missed_a_peer.push_back(end.rank);
      continue;
    }
    told_of.push_back(&end);
    lines.push_back("after it " + describe_failure(end, ends));
  }
  if (!missed_a_peer.empty())
    lines.push_back(fmt::format("after it {} failed for want of a peer", describe_ranks(missed_a_peer)));
  if (!killed.empty())
    lines.push_back(fmt::format("{} did not stop on SIGTERM and had to be killed", describe_ranks(killed)));
  return lines;
}

bool all_alike(const RankEnd& root, std::span<const RankEnd> ends) {
  return !root.last_line().empty() && std::all_of(ends.begin(), ends.end(), [&](const RankEnd& end) {
    return end.failed() && !end.told && is_alike(end, root);
  });
}

const RankEnd& witness(const RankEnd& root, std::span<const RankEnd> ends) {
  if (root.stopped == 0) return root;
  const RankEnd* missed = earliest(ends, [](const RankEnd& end) { return end.failed() && !end.told; });
  return missed != nullptr ? *missed : root;
}

// A message out of an error file may be on the terminal too, as the last line of a traceback.
bool is_shown(const RankEnd& root, std::span<const RankEnd> ends) {
  const RankEnd& told = witness(root, ends);
  return std::any_of(ends.begin(), ends.end(), [&](const RankEnd& end) {
    if (end.shown == Show::Nothing || !is_alike(end, told)) return false;
    return end.message.empty() ||
           std::any_of(end.last_lines.begin(), end.last_lines.end(),
                       [&](const std::string& line) { return line.find(end.message) != std::string::npos; });
  });
}

bool is_alone(const RankEnd& root, std::span<const RankEnd> ends) {
  return !root.last_line().empty() && std::all_of(ends.begin(), ends.end(), [&](const RankEnd& end) {
    return end.rank == root.rank || end.lost_peer || (end.told && !end.killed);
  });
}

}  // namespace tandem
