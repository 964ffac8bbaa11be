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
    end.is_ours = true;
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

TEST(Verdict, CodesOfAnotherProgramMeanNothing) {
  for (int code : {2, 3, 4}) {
    AttemptResult result = result_of({code, 0});
    result.ends[0].is_ours = false;
    EXPECT_EQ(EndKind::Restart, judge(result, 0, 3).kind);
    EXPECT_EQ(1, judge(result, 3, 3).code);
  }
}

TEST(Verdict, RanksThatMissOneThatWasInterruptedAreInterruptedToo) {
  AttemptResult result = result_of({1, 75, 1}, SIGTERM);
  for (int rank : {0, 2}) result.ends[static_cast<size_t>(rank)].lost_peer = true;
  result.ends[0].told = result.ends[1].told = false;
  result.interrupted_rank = 1;
  const RoundEnd end = judge(result, 0, 3);
  EXPECT_EQ(EndKind::Stop, end.kind);
  EXPECT_EQ(75, end.code);
  EXPECT_EQ(1, end.rank);
  result.ends[2].lost_peer = false;  // it could not save
  EXPECT_EQ("rank 2 failed with exit code 1", judge(result, 0, 3).reason);
}

TEST(Verdict, ABudgetThatIsReachedIsPassedOnAndNotStartedAgain) {
  const RoundEnd end = judge(result_of({76, 76}), 0, 3);
  EXPECT_EQ(EndKind::Stop, end.kind);
  EXPECT_EQ(76, end.code);
  EXPECT_EQ(76, judge(result_of({76, 76}, SIGTERM), 0, 3).code);
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

TEST(Verdict, OfRanksThatFailToSaveTheOneThatMissedAPeerIsNotTheCause) {
  AttemptResult result = result_of({1, 1}, SIGTERM);
  result.ends[0].lost_peer = true;
  EXPECT_EQ("rank 1 failed with exit code 1", judge(result, 0, 3).reason);
  EXPECT_EQ(1, judge(result, 0, 3).rank);
}

// What a node says whose ranks ended so.
std::string told(const RoundEnd& end, const AttemptResult& result) {
  std::FILE* file = std::tmpfile();
  Terminal terminal(fileno(file), fileno(file));
  LogDirectory logs("");
  report(end, result, 0, logs, terminal);
  std::filesystem::remove_all(logs.path());
  const std::string path = logs.path().string();
  std::string text(4096, '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  if (const size_t at = text.find(path); at != std::string::npos) text.replace(at, path.size(), "LOGS");
  return text;
}

// ... all alike, with this code and line.
std::string told(const RoundEnd& end, int exit_code, const std::string& line) {
  AttemptResult result = result_of({exit_code, exit_code});
  for (RankEnd& rank : result.ends) rank.last_lines = {"tandem: error: " + line};
  return told(end, result);
}

// Rank 0 fails with this code and line, and the others miss it.
AttemptResult failure_of_rank_0(int exit_code, Show shown) {
  AttemptResult result = result_of({exit_code, 1, 1});
  for (RankEnd& rank : result.ends) {
    rank.lost_peer = rank.rank != 0;
    rank.last_lines = {rank.rank == 0 ? "tandem: error: it is so" : "tandem: error: barrier: it is so"};
  }
  result.ends[0].shown = shown;
  return result;
}

TEST(Report, IsTheRanksOwnLineWhereAllRefusedTheSame) {
  const RoundEnd end{EndKind::Stop, 2, "ranks 0, 1 failed with exit code 2: no such key", 0};
  EXPECT_EQ("tandem: error: no such key\n", told(end, 2, "no such key"));
}

TEST(Report, IsNothingWhereTheLineOfTheRankThatRefusedStandsThere) {
  const AttemptResult result = failure_of_rank_0(2, Show::AsItIs);
  const RoundEnd end = judge(result, 0, 3);
  EXPECT_EQ(2, end.code);
  EXPECT_EQ("", told(end, result));
}

TEST(Report, TellsALineThatWasShownNoSecondTime) {
  AttemptResult result = failure_of_rank_0(1, Show::AsItIs);
  const std::string rest =
      "tandem launch: after it ranks 1, 2 failed for want of a peer\n"
      "tandem launch: the ranks' output is in LOGS\n";
  EXPECT_EQ("tandem launch: rank 0 failed with exit code 1\n" + rest, told(judge(result, 0, 0), result));
  result.ends[0].last_lines = {"Traceback", "OSError"};
  EXPECT_EQ("tandem: error: rank 0 failed with exit code 1\n" + rest, told(judge(result, 0, 0), result));
  result.ends[0].shown = Show::Nothing;
  EXPECT_EQ(
      "tandem: error: rank 0 failed with exit code 1: OSError\n[rank 0] Traceback\n[rank 0] OSError\n" + rest,
      told(judge(result, 0, 0), result));
}

TEST(Report, NamesTheRankThatRefusedAmongPrefixedLines) {
  const AttemptResult result = failure_of_rank_0(2, Show::Prefixed);
  EXPECT_EQ(0u, told(judge(result, 0, 0), result).find("tandem launch: rank 0 failed with exit code 2\n"));
}

TEST(Report, TellsALineThatARankWhichEndedAlikeHasShownNoSecondTime) {
  AttemptResult result = result_of({1, 1});
  for (RankEnd& rank : result.ends) rank.last_lines = {"tandem: error: port: in use"};
  result.ends[0].shown = Show::AsItIs;
  result.ends[0].at_s = 1;  // rank 1 was first
  EXPECT_EQ(
      "tandem launch: ranks 0, 1 failed with exit code 1\ntandem launch: the ranks' output is in LOGS\n",
      told(judge(result, 0, 0), result));
}

TEST(Report, NamesTheRankThatWasInterrupted) {
  AttemptResult result = result_of({75, 75}, SIGTERM);
  EXPECT_EQ("", told(judge(result, 0, 0), result));
  result.interrupted_rank = 1;
  EXPECT_EQ("tandem launch: rank 1 was interrupted, and all ranks have ended: launch again to go on\n",
            told(judge(result, 0, 0), result));
}

TEST(Report, NamesTheStoppedRankAndTheLineOfWhoMissedIt) {
  AttemptResult result = result_of({1, 0, 1});
  for (RankEnd& rank : result.ends) {
    rank.lost_peer = rank.rank != 1;
    rank.last_lines = {rank.rank == 1 ? "step 5" : "tandem: error: rank 1 is silent"};
  }
  result.ends[1].stopped = SIGSTOP;
  result.ends[1].told = true;
  result.ends[1].exit_code = 4;
  const std::string rest =
      "tandem launch: after it ranks 0, 2 failed for want of a peer\n"
      "tandem launch: the ranks' output is in LOGS\n";
  EXPECT_EQ(1, judge(result, 0, 0).code);
  EXPECT_EQ(EndKind::Restart, judge(result, 0, 1).kind);
  EXPECT_EQ("tandem: error: rank 1 was stopped (SIGSTOP): rank 1 is silent\n" + rest,
            told(judge(result, 0, 0), result));
  result.ends[0].shown = Show::AsItIs;
  EXPECT_EQ("tandem launch: rank 1 was stopped (SIGSTOP)\n" + rest, told(judge(result, 0, 0), result));
}

TEST(Report, NamesTheRankThatHinderedTheOthersWhateverBecameOfAllOfThem) {
  AttemptResult result = result_of({75, 75, 1});
  for (RankEnd& rank : result.ends) rank.told = true;
  result.ends[1].hinders = "in matmul of block 5 (pass 2 of 4, command 181 of 709)";
  const RoundEnd again = judge(result, 0, 1);
  EXPECT_EQ(EndKind::Restart, again.kind);
  EXPECT_EQ("rank 1 was stuck in matmul of block 5 (pass 2 of 4, command 181 of 709)", again.reason);
  EXPECT_EQ(1, judge(result, 0, 0).code);
  result.ends[1].stopped = SIGSTOP;
  EXPECT_EQ("rank 1 was stopped (SIGSTOP)", judge(result, 0, 1).reason);
}

TEST(Report, IsAnotherNodesReasonWhereThisOnesRanksEndedOfIt) {
  const RoundEnd end{EndKind::Stop, 4, "rank 2 failed with exit code 4: data is truncated", 0};
  const std::string text = told(end, 1, "rank 2 is gone");
  EXPECT_EQ(0u, text.find("tandem: error: rank 2 failed with exit code 4: data is truncated\n")) << text;
}

}  // namespace
}  // namespace tandem
