#include "tandem/launch/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr int kInterrupted = static_cast<int>(ExitCode::Interrupted);

// After a forwarded signal a rank may end well, with its work saved, or by that signal.
bool obeyed(const RankEnd& end) {
  return end.signal != 0 || end.exit_code == 0 || end.exit_code == kInterrupted || end.exit_code > 128;
}

RoundEnd judge_interrupted(const AttemptResult& result) {
  bool saved = false, died = false;
  for (const RankEnd& end : result.ends) {
    if (!obeyed(end)) {
      RankEnd failure = end;
      failure.told = false;
      return end_for_failure(describe_failure(failure, {&failure, 1}), end.exit_code, 0, 0);
    }
    died |= end.signal != 0 || end.exit_code > 128;
    saved |= end.signal == 0 && end.exit_code == kInterrupted;
  }
  const int code = died ? 128 + result.interrupted : saved ? kInterrupted : 0;
  return {code == 0 ? EndKind::Done : EndKind::Stop, code, "", 0};
}

}  // namespace

RoundEnd end_for_failure(const std::string& reason, int exit_code, int restarts, int max_restarts) {
  if (is_final_code(exit_code)) return {EndKind::Stop, exit_code, reason, 0};
  if (restarts < max_restarts) return {EndKind::Restart, 1, reason, restarts + 1};
  return {EndKind::Stop, static_cast<int>(ExitCode::Failed), reason, 0};
}

RoundEnd judge(const AttemptResult& result, int restarts, int max_restarts) {
  if (const RankEnd* root = root_cause(result.ends))
    return end_for_failure(describe_failure(*root, result.ends), root->signal != 0 ? 1 : root->exit_code,
                           result.interrupted != 0 ? max_restarts : restarts, max_restarts);
  if (result.interrupted != 0) return judge_interrupted(result);
  return {};
}

void report(const RoundEnd& end, const AttemptResult& result, int max_restarts, bool shows_rank_0,
            LogDirectory& logs, Terminal& terminal) {
  if (end.reason.empty()) return;
  const RankEnd* root = root_cause(result.ends);
  // Where another node decided, this one's ranks may have ended of that: then its reason must be told.
  const bool is_the_reason = root != nullptr && root->signal == 0 && root->exit_code == end.code;
  if (is_the_reason && is_final_code(end.code) && end.kind == EndKind::Stop &&
      all_alike(*root, result.ends)) {
    const bool shown = shows_rank_0 && result.ends.front().rank == 0;
    if (!shown) terminal.error(root->last_line());
    return;
  }
  if (end.kind == EndKind::Restart) {
    terminal.message(
        fmt::format("{}; restarting all ranks ({} of {})", end.reason, end.restarts, max_restarts));
  } else {
    terminal.error(end.reason);
  }
  if (root != nullptr) {
    const bool shown = shows_rank_0 && root->rank == 0;
    if (root->last_lines.size() > 1 && !shown) {
      for (const std::string& line : root->last_lines)
        terminal.line(fmt::format("[rank {}] {}", root->rank, line));
    }
  }
  for (const std::string& line : describe_others(root, result.ends)) terminal.message(line);
  if (end.kind == EndKind::Stop) {
    logs.keep();
    terminal.message(fmt::format("the ranks' output is in {}", logs.path().string()));
  }
}

}  // namespace tandem
