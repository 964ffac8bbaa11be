#include "tandem/launch/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr int kInterrupted = static_cast<int>(ExitCode::Interrupted);

// After a forwarded signal a rank may end well, with its work saved, or by that signal.
bool obeyed(const RankEnd& end) {
  return end.signal != 0 || end.exit_code == 0 || end.exit_code == kInterrupted ||
         end.exit_code == kBudgetReached || end.exit_code > 128;
}

RoundEnd end_for_rank(const RankEnd& root, std::span<const RankEnd> ends, int restarts, int max_restarts) {
  RoundEnd end = end_for_failure(describe_failure(root, ends), root.code(), restarts, max_restarts);
  end.rank = root.rank;
  return end;
}

// Ranks that are interrupted at different moments, or only one of them, may miss each other.
bool only_missed_the_interrupted(const AttemptResult& result, const RankEnd& end) {
  return end.lost_peer && result.interrupted != 0 &&
         std::any_of(result.ends.begin(), result.ends.end(), was_interrupted);
}

RoundEnd judge_interrupted(const AttemptResult& result) {
  bool saved = false, died = false;
  std::vector<RankEnd> failures;
  for (const RankEnd& end : result.ends) {
    if (!obeyed(end) && !only_missed_the_interrupted(result, end)) {
      failures.push_back(end);
      failures.back().told = false;
    }
    died |= end.signal != 0 || end.exit_code > 128;
    saved |= was_interrupted(end);
  }
  if (const RankEnd* root = root_cause(failures)) return end_for_rank(*root, failures, 0, 0);
  const int code = died ? 128 + result.interrupted : saved ? kInterrupted : 0;
  RoundEnd end{code == 0 ? EndKind::Done : EndKind::Stop, code, "", 0};
  end.rank = result.interrupted_rank;
  return end;
}

// Whether the ranks here refused what another start would not change, and one line of theirs is all there is
// to tell: of all of them, or of the one that is shown as if it ran alone.
bool says_all(const RankEnd& root, const RoundEnd& end, std::span<const RankEnd> ends) {
  if (end.kind != EndKind::Stop || !is_final_code(end.code)) return false;
  if (!root.is_final() || root.exit_code != end.code) return false;
  return all_alike(root, ends) ||
         (root.rank == end.rank && root.shown == Show::AsItIs && is_alone(root, ends));
}

// A line that was shown is not told again. If that was an error, the user has one.
void tell_stop(const RoundEnd& end, const RankEnd* root, std::span<const RankEnd> ends, Terminal& terminal) {
  if (root == nullptr || !is_shown(*root, ends)) return terminal.error(end.reason);
  const std::string text = describe_end(*root, ends);
  witness(*root, ends).has_error_line() ? terminal.message(text) : terminal.error(text);
}

}  // namespace

RoundEnd end_for_failure(const std::string& reason, int exit_code, int restarts, int max_restarts) {
  if (is_final_code(exit_code)) return {EndKind::Stop, exit_code, reason, 0};
  if (restarts < max_restarts) return {EndKind::Restart, 1, reason, restarts + 1};
  return {EndKind::Stop, static_cast<int>(ExitCode::Failed), reason, 0};
}

RoundEnd judge(const AttemptResult& result, int restarts, int max_restarts) {
  const RankEnd* root = root_cause(result.ends);
  if (root != nullptr && !only_missed_the_interrupted(result, *root))
    return end_for_rank(*root, result.ends, result.interrupted != 0 ? max_restarts : restarts, max_restarts);
  // All ranks agree on it; rank 0 has told why.
  for (const RankEnd& end : result.ends) {
    if (end.signal == 0 && end.exit_code == kBudgetReached) return {EndKind::Stop, kBudgetReached, "", 0};
  }
  if (result.interrupted != 0) return judge_interrupted(result);
  return {};
}

void report(const RoundEnd& end, const AttemptResult& result, int max_restarts, LogDirectory& logs,
            Terminal& terminal) {
  if (end.reason.empty()) {
    if (end.kind == EndKind::Stop && end.rank >= 0)
      terminal.message(
          fmt::format("rank {} was interrupted, and all ranks have ended{}: launch again to go on", end.rank,
                      end.code == kInterrupted ? "" : ", not all with their work saved"));
    return;
  }
  const std::vector<RankEnd>& ends = result.ends;
  if (const RankEnd* first = root_cause(ends); first != nullptr && says_all(*first, end, ends)) {
    if (!is_shown(*first, ends)) terminal.error(first->last_line());
    return;
  }
  const auto found =
      std::find_if(ends.begin(), ends.end(), [&](const RankEnd& rank) { return rank.rank == end.rank; });
  const RankEnd* root = found != ends.end() ? &*found : nullptr;  // null: on another node
  if (end.kind == EndKind::Restart) {
    terminal.message(fmt::format("{}; restarting all ranks ({} of {})", end.reason,
                                 end.restarts - end.returns, max_restarts));
  } else {
    tell_stop(end, root, ends, terminal);
  }
  if (root != nullptr && root->stopped == 0 && root->last_lines.size() > 1 && !is_shown(*root, ends)) {
    for (const std::string& line : root->last_lines)
      terminal.line(fmt::format("[rank {}] {}", root->rank, line));
  }
  for (const std::string& line : describe_others(root, ends)) terminal.message(line);
  if (end.kind == EndKind::Stop) {
    logs.keep();
    terminal.message(fmt::format("the ranks' output is in {}", logs.path().string()));
  }
}

}  // namespace tandem
