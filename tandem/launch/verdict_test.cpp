#include "tandem/launch/verdict.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>

namespace tandem {
namespace {

AttemptResult result_of(const std::vector<int>& exit_codes, int interrupted = 0) {
  AttemptResult result;
  result.interrupted = interrupted;
  for (int code : exit_codes) {
    RankEnd end;
    end.rank = static_cast<int>(result.ends.size());
    end.exit_code = code;
    end.told = interrupted != 0;
    result.ends.push_back(end);
  }
  return result;
}

TEST(Verdict, AFailureIsRestartedWhileRestartsAreLeft) {
  EXPECT_EQ(EndKind::Done, judge(result_of({0, 0}), 0, 3).kind);
  const RoundEnd again = judge(result_of({0, 17}), 1, 3);
  EXPECT_EQ(EndKind::Restart, again.kind);
  EXPECT_EQ(2, again.restarts);
  const RoundEnd over = judge(result_of({0, 17}), 3, 3);
  EXPECT_EQ(EndKind::Stop, over.kind);
  EXPECT_EQ(1, over.code);
}

TEST(Verdict, BadUsageMemoryAndDataAreNeverRestarted) {
  for (int code : {2, 3, 4}) {
    const RoundEnd end = judge(result_of({code, 0}), 0, 3);
    EXPECT_EQ(EndKind::Stop, end.kind);
    EXPECT_EQ(code, end.code);
  }
}

TEST(Verdict, AnInterruptionThatWasSavedIs75AndOneThatWasNotIsTheSignal) {
  EXPECT_EQ(75, judge(result_of({75, 75}, SIGINT), 0, 3).code);
  EXPECT_EQ(75, judge(result_of({75, 0}, SIGTERM), 0, 3).code);
  EXPECT_EQ(0, judge(result_of({0, 0}, SIGTERM), 0, 3).code);
  AttemptResult died = result_of({75, 0}, SIGINT);
  died.ends[1].signal = SIGINT;
  EXPECT_EQ(130, judge(died, 0, 3).code);
  EXPECT_EQ(EndKind::Stop, judge(died, 0, 3).kind);
}

TEST(Verdict, ARankThatWasInterruptedByItselfIsNoFailure) {
  AttemptResult result = result_of({75, 75}, SIGTERM);
  result.ends[0].told = false;
  EXPECT_EQ(75, judge(result, 0, 3).code);
}

TEST(Verdict, ARankThatFailsToSaveIsAFailure) {
  const RoundEnd end = judge(result_of({75, 1}, SIGTERM), 0, 3);
  EXPECT_EQ(EndKind::Stop, end.kind);
  EXPECT_EQ(1, end.code);
  EXPECT_EQ("rank 1 failed with exit code 1", end.reason);
}

TEST(Verdict, ARankThatFailedBeforeTheSignalIsNotRestarted) {
  AttemptResult result = result_of({1, 75}, SIGINT);
  result.ends[0].told = false;
  EXPECT_EQ(EndKind::Stop, judge(result, 0, 3).kind);
}

// What a node says whose two ranks ended alike, with this code and line.
std::string told(const RoundEnd& end, int exit_code, const std::string& line) {
  AttemptResult result = result_of({exit_code, exit_code});
  for (RankEnd& rank : result.ends) rank.last_lines = {"tandem: error: " + line};
  std::FILE* file = std::tmpfile();
  Terminal terminal(fileno(file), fileno(file));
  LogDirectory logs("");
  report(end, result, 0, false, logs, terminal);
  std::filesystem::remove_all(logs.path());
  std::string text(4096, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(Report, IsTheRanksOwnLineWhereAllRefusedTheSame) {
  const RoundEnd end{EndKind::Stop, 2, "ranks 0, 1 failed with exit code 2: no such key", 0};
  EXPECT_EQ("tandem: error: no such key\n", told(end, 2, "no such key"));
}

TEST(Report, IsAnotherNodesReasonWhereThisOnesRanksEndedOfIt) {
  const RoundEnd end{EndKind::Stop, 4, "rank 2 failed with exit code 4: data is truncated", 0};
  const std::string text = told(end, 1, "rank 2 is gone");
  EXPECT_EQ(0u, text.find("tandem: error: rank 2 failed with exit code 4: data is truncated\n")) << text;
}

}  // namespace
}  // namespace tandem
