#include "tandem/launch/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr double kTogether_s = 1.0;
constexpr std::string_view kErrorPrefix = "tandem: error: ";

bool is_alike(const RankEnd& a, const RankEnd& b) {
  return a.exit_code == b.exit_code && a.signal == b.signal && a.last_line() == b.last_line();
}

std::vector<int> ranks_like(const RankEnd& end, std::span<const RankEnd> ends) {
  std::vector<int> ranks;
  for (const RankEnd& other : ends) {
    if (other.failed() && !other.told && is_alike(other, end)) ranks.push_back(other.rank);
  }
  return ranks;
}

std::string with_line(std::string text, const RankEnd& end) {
  const std::string line = end.last_line();
  return line.empty() ? text : text + ": " + line;
}

}  // namespace

bool RankEnd::failed() const {
  return signal != 0 || (exit_code != 0 && exit_code != static_cast<int>(ExitCode::Interrupted));
}

std::string RankEnd::last_line() const {
  if (last_lines.empty()) return "";
  const std::string& line = last_lines.back();
  return line.starts_with(kErrorPrefix) ? line.substr(kErrorPrefix.size()) : line;
}

bool is_final_code(int exit_code) {
  return exit_code == static_cast<int>(ExitCode::BadUsage) ||
         exit_code == static_cast<int>(ExitCode::DoesNotFit) ||
         exit_code == static_cast<int>(ExitCode::BadData);
}

// A program that is surprised by a lost peer may well abort or write into a closed pipe.
bool is_own_fault(const RankEnd& end) {
  constexpr std::array<int, 5> kOwn = {SIGKILL, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
  if (end.signal != 0) return std::find(kOwn.begin(), kOwn.end(), end.signal) != kOwn.end();
  return is_final_code(end.exit_code);
}

const RankEnd* root_cause(std::span<const RankEnd> ends) {
  const RankEnd* first = nullptr;
  for (const RankEnd& end : ends) {
    if (end.failed() && !end.told && (first == nullptr || end.at_s < first->at_s)) first = &end;
  }
  if (first == nullptr || is_own_fault(*first)) return first;
  const RankEnd* stronger = nullptr;
  for (const RankEnd& end : ends) {
    if (end.told || !is_own_fault(end) || end.at_s > first->at_s + kTogether_s) continue;
    if (stronger == nullptr || end.at_s < stronger->at_s) stronger = &end;
  }
  return stronger != nullptr ? stronger : first;
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

std::string describe_exit(const RankEnd& end) {
  if (end.signal == 0) return fmt::format("exit code {}", end.exit_code);
  const char* name = ::sigabbrev_np(end.signal);
  return fmt::format("signal {} ({})", end.signal, name != nullptr ? fmt::format("SIG{}", name) : "unnamed");
}

std::string describe_failure(const RankEnd& root, std::span<const RankEnd> ends) {
  return with_line(
      fmt::format("{} failed with {}", describe_ranks(ranks_like(root, ends)), describe_exit(root)), root);
}

std::vector<std::string> describe_others(const RankEnd* root, std::span<const RankEnd> ends) {
  std::vector<std::string> lines;
  std::vector<int> killed;
  std::vector<const RankEnd*> told_of;
  if (root != nullptr) told_of.push_back(root);
  for (const RankEnd& end : ends) {
    if (end.killed) killed.push_back(end.rank);
    if (!end.failed() || end.told) continue;
    const bool known = std::any_of(told_of.begin(), told_of.end(),
                                   [&](const RankEnd* other) { return is_alike(*other, end); });
    if (known) continue;
    told_of.push_back(&end);
    lines.push_back(with_line(
        fmt::format("after it {} failed with {}", describe_ranks(ranks_like(end, ends)), describe_exit(end)),
        end));
  }
  if (!killed.empty())
    lines.push_back(fmt::format("{} did not stop on SIGTERM and had to be killed", describe_ranks(killed)));
  return lines;
}

bool all_alike(const RankEnd& root, std::span<const RankEnd> ends) {
  return !root.last_line().empty() && std::all_of(ends.begin(), ends.end(), [&](const RankEnd& end) {
    return end.failed() && !end.told && is_alike(end, root);
  });
}

}  // namespace tandem
