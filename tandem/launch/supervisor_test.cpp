#include "tandem/launch/supervisor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <future>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/launch/environment.h"

namespace tandem {
namespace {

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    EXPECT_EQ(0, ::pipe(quiet_));
    setup_.heading = "test";
  }
  ~SupervisorTest() override {
    for (int fd : quiet_) ::close(fd);
  }

  // `script` runs under sh for each of `num_ranks` ranks, in the test's directory.
  AttemptResult run(const std::string& script, int num_ranks) {
    setup_.program = {"sh", "-c", "cd " + directory_.path().string() + "; " + script};
    setup_.ranks.clear();
    for (int rank = 0; rank < num_ranks; ++rank) {
      setup_.ranks.push_back(
          {.rank = rank,
           .environment = rank_environment({.rank = rank, .world_size = num_ranks, .notes = notes_of(rank)},
                                           own_environment()),
           .log = log_of(rank),
           .notes = notes_of(rank)});
    }
    Terminal terminal(quiet_[1], quiet_[1]);
    return supervise(setup_, signals_, terminal, others_);
  }
  std::filesystem::path log_of(int rank) const {
    return directory_.path() / ("rank-" + std::to_string(rank) + ".log");
  }
  RankNotes notes_of(int rank) const { return RankNotes::in(directory_.path(), rank); }
  // A process whose number a script has written there has ended.
  bool ends(const char* name) const {
    const int pid = std::stoi(read_text(directory_.path() / name));
    for (int tries = 0; tries < 6000; ++tries, ::usleep(10000)) {
      std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
      std::string text;
      if (!std::getline(stat, text) || text[text.rfind(')') + 2] == 'Z') return true;
    }
    return false;
  }
  bool exists(const char* name) const { return std::filesystem::exists(directory_.path() / name); }

  TemporaryDirectory directory_;
  SignalReader signals_;
  AttemptSetup setup_;
  OtherNodes* others_ = nullptr;
  int quiet_[2];
};

TEST_F(SupervisorTest, RunsEveryRankToItsEndAndKeepsItsOutput) {
  const AttemptResult result = run("echo out $RANK; echo err $RANK >&2", 3);
  ASSERT_EQ(3u, result.ends.size());
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(result.ends[static_cast<size_t>(rank)].failed());
    const std::string log = read_text(log_of(rank));
    EXPECT_NE(std::string::npos, log.find("out " + std::to_string(rank) + "\n"));
    EXPECT_NE(std::string::npos, log.find("err " + std::to_string(rank) + "\n"));
  }
  EXPECT_EQ(nullptr, root_cause(result.ends));
}

TEST_F(SupervisorTest, AFailureStopsTheOthersAndIsTheRootCause) {
  const AttemptResult result =
      run("if [ $RANK = 1 ]; then echo first >&2; echo it broke >&2; exit 7; fi; sleep 60", 3);
  const RankEnd* root = root_cause(result.ends);
  ASSERT_NE(nullptr, root);
  EXPECT_EQ(1, root->rank);
  EXPECT_EQ(7, root->exit_code);
  EXPECT_EQ("it broke", root->last_line());
  EXPECT_EQ(SIGTERM, result.ends[0].signal);
  EXPECT_TRUE(result.ends[2].told);
  EXPECT_FALSE(result.ends[2].killed);
}

TEST_F(SupervisorTest, ARankThatIgnoresSigtermIsKilledWithAllItStarted) {
  setup_.failure_grace = std::chrono::milliseconds(100);
  const AttemptResult result =
      run("if [ $RANK = 1 ]; then while ! [ -s pid ]; do sleep 0.01; done; exit 1; fi; trap '' TERM; "
          "sh -c \"trap '' TERM; echo \\$\\$ > pid; while true; do sleep 1; done\" & wait; sleep 60",
          2);
  EXPECT_EQ(SIGKILL, result.ends[0].signal);
  EXPECT_TRUE(result.ends[0].killed);
  EXPECT_TRUE(ends("pid"));
}

TEST_F(SupervisorTest, WhatARankLeavesBehindEndsWithIt) {
  run("sh -c 'echo $$ > pid; while true; do sleep 1; done' & while ! [ -s pid ]; do sleep 0.01; done; exit 0",
      1);
  EXPECT_TRUE(ends("pid"));
}

TEST_F(SupervisorTest, AStoppedRankIsStoppedToo) {
  const AttemptResult result =
      run("if [ $RANK = 0 ]; then echo $$ > pid; sleep 60; fi; while ! [ -s pid ]; do sleep 0.01; done; "
          "kill -STOP $(cat pid); exit 1",
          2);
  EXPECT_EQ(1, root_cause(result.ends)->rank);
  EXPECT_NE(0, result.ends[0].signal);
}

// Stopped and, as they find, not there for them.
const std::string kMissStopped =
    "if [ $RANK = 1 ]; then echo $$ > .pid; mv .pid pid; while true; do sleep 1; done; fi; "
    "while ! [ -e pid ]; do sleep 0.01; done; ";

TEST_F(SupervisorTest, AStoppedRankIsTheCauseWhereTheOthersMissIt) {
  const AttemptResult result = run(
      kMissStopped + "kill -STOP $(cat pid); touch $TANDEM_LOST_PEER_FILE; echo rank 1 is silent >&2; exit 1",
      3);
  const RankEnd* root = root_cause(result.ends);
  ASSERT_NE(nullptr, root);
  EXPECT_EQ(1, root->rank);
  EXPECT_EQ("rank 1 was stopped (SIGSTOP): rank 1 is silent", describe_failure(*root, result.ends));
}

TEST_F(SupervisorTest, ARankThatWentOnBeforeAFailureIsItsCauseIfThatWasShortlyBefore) {
  const std::string script =
      kMissStopped +
      "[ $RANK = 0 ] && sleep 60; kill -STOP $(cat pid); sleep 0.1; kill -CONT $(cat pid); "
      "touch $TANDEM_LOST_PEER_FILE; exit 1";
  setup_.stopped_before = std::chrono::milliseconds(60000);
  EXPECT_EQ(1, root_cause(run(script, 3).ends)->rank);
  setup_.stopped_before = std::chrono::milliseconds(0);
  EXPECT_EQ(2, root_cause(run(script, 3).ends)->rank);
}

TEST_F(SupervisorTest, OfRanksThatWereInterruptedTheFirstToNoteItIsNamed) {
  const AttemptResult result =
      run("[ $RANK = 2 ] && { echo 10 > $TANDEM_INTERRUPTED_FILE; touch noted; sleep 60; }; "
          "while ! [ -e noted ]; do sleep 0.01; done; "
          "[ $RANK = 0 ] && exit 75; trap 'touch $TANDEM_INTERRUPTED_FILE; exit 75' TERM; while true; do "
          "sleep 0.01; done",
          3);
  EXPECT_EQ(SIGTERM, result.interrupted);
  EXPECT_EQ(2, result.interrupted_rank);
}

TEST_F(SupervisorTest, RanksThatMissOneThatWasInterruptedAreNoFailure) {
  const AttemptResult result =
      run("[ $RANK = 1 ] && { echo 15 > $TANDEM_INTERRUPTED_FILE; touch noted; sleep 0.2; exit 75; }; "
          "while ! [ -e noted ]; do sleep 0.01; done; touch $TANDEM_LOST_PEER_FILE; exit 1",
          3);
  EXPECT_EQ(1, result.interrupted_rank);
}

TEST_F(SupervisorTest, RanksWithAFinalCodeHaveTimeToAgree) {
  const AttemptResult result = run(
      "touch $TANDEM_FINAL_FILE; [ $RANK = 0 ] || sleep 0.3; echo 'tandem: error: bad key' >&2; exit 2", 3);
  ASSERT_NE(nullptr, root_cause(result.ends));
  EXPECT_TRUE(all_alike(*root_cause(result.ends), result.ends));
}

TEST_F(SupervisorTest, ARankThatMissedAPeerIsNotTheCause) {
  const AttemptResult result =
      run("if [ $RANK = 1 ]; then sleep 0.4; echo disk full >&2; exit 1; fi; "
          "touch $TANDEM_LOST_PEER_FILE; echo rank 1 is gone >&2; exit 1",
          3);
  ASSERT_NE(nullptr, root_cause(result.ends));
  EXPECT_EQ(1, root_cause(result.ends)->rank);
  EXPECT_TRUE(result.ends[0].lost_peer && result.ends[2].lost_peer);
  EXPECT_FALSE(result.ends[1].lost_peer || result.ends[1].told);
}

TEST_F(SupervisorTest, WhatAnEarlierRankSaidIsForgotten) {
  for (const std::filesystem::path& path :
       {notes_of(0).lost_peer, notes_of(0).final_code, notes_of(0).interrupted, notes_of(0).error})
    std::ofstream(path) << R"({"message": "an old one"})";
  const AttemptResult result = run("exit 2", 1);
  EXPECT_FALSE(result.ends[0].lost_peer || result.ends[0].is_final());
  EXPECT_EQ("", result.ends[0].last_line());
}

TEST_F(SupervisorTest, ARanksErrorFileSaysWhyItFailed) {
  const AttemptResult result =
      run("echo at exit >&2; printf %s '{\"message\": {\"message\": \"ValueError: no\\nat all\", "
          "\"extraInfo\": {}}}' > "
          "$TORCHELASTIC_ERROR_FILE; exit 1",
          1);
  EXPECT_EQ("rank 0 failed with exit code 1: ValueError: no", describe_failure(result.ends[0], result.ends));
}

TEST_F(SupervisorTest, AnErrorFileThatIsNoneSaysNothing) {
  for (const char* content : {"", "[1]", "{\"message\": 3}", "{\"message\": {\"x\": {}}}", "{{{{"}) {
    const std::string script =
        fmt::format("echo '{}' > $TORCHELASTIC_ERROR_FILE; echo last; exit 1", content);
    EXPECT_EQ("last", run(script, 1).ends[0].last_line()) << content;
  }
}

TEST_F(SupervisorTest, ASignalIsPassedOnAndARankMaySaveItsWork) {
  const AttemptResult result =
      run("trap 'touch saved$RANK; exit 75' TERM; touch up$RANK; "
          "if [ $RANK = 0 ]; then while ! [ -e up1 ]; do sleep 0.01; done; kill -TERM $PPID; fi; "
          "while true; do sleep 0.01; done",
          2);
  EXPECT_EQ(SIGTERM, result.interrupted);
  EXPECT_TRUE(exists("saved0"));
  EXPECT_TRUE(exists("saved1"));
  EXPECT_EQ(75, result.ends[0].exit_code);
  EXPECT_EQ(75, result.ends[1].exit_code);
  EXPECT_EQ(nullptr, root_cause(result.ends));
}

TEST_F(SupervisorTest, ASecondSignalKills) {
  const AttemptResult result =
      run("trap 'kill -INT $PPID' INT; touch up$RANK; "
          "if [ $RANK = 0 ]; then kill -INT $PPID; fi; while true; do sleep 0.01; done",
          1);
  EXPECT_EQ(SIGINT, result.interrupted);
  EXPECT_EQ(SIGKILL, result.ends[0].signal);
}

// As Slurm does it: at once when it wants the node, and again when the time is up.
TEST_F(SupervisorTest, ASchedulersSecondSigtermDoesNotKillWhoIsSaving) {
  setup_.is_scheduled = true;
  const AttemptResult result = run(
      "trap 'trap \"\" TERM; kill -TERM $PPID; sleep 0.3; exit 75' TERM; echo $$ > pid; kill -TERM $PPID; "
      "while true; do sleep 0.01; done",
      1);
  EXPECT_EQ(75, result.ends[0].exit_code);
  EXPECT_FALSE(result.ends[0].killed);
}

TEST_F(SupervisorTest, ARankThatWasInterruptedByOthersInterruptsAll) {
  const AttemptResult result =
      run("[ $RANK = 0 ] && sleep 0.2 && exit 75; trap 'exit 75' TERM; while true; do sleep 0.01; done", 2);
  EXPECT_EQ(SIGTERM, result.interrupted);
  EXPECT_EQ(75, result.ends[1].exit_code);
}

TEST_F(SupervisorTest, AProgramThatDoesNotExistIsNamed) {
  setup_.program = {"no-such-program"};
  setup_.ranks = {{.rank = 0, .environment = own_environment(), .log = log_of(0), .notes = notes_of(0)}};
  Terminal terminal(quiet_[1], quiet_[1]);
  try {
    supervise(setup_, signals_, terminal);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(0u, std::string(error.what()).find("no-such-program: cannot be started: No such file"));
  }
}

TEST_F(SupervisorTest, OutputOfManyMegabytesIsKept) {
  run("yes 0123456789012345678901234567890123456789 | head -c 5000000; echo; echo end", 2);
  for (int rank : {0, 1}) {
    const std::string log = read_text(log_of(rank));
    EXPECT_GT(log.size(), 5000000u);
    EXPECT_NE(std::string::npos, log.find("\nend\n"));
  }
}

TEST(SignalReader, TakesSignalsButNoHangupThatWasIgnored) {
  struct sigaction outer {
  }, ignore{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGHUP, &ignore, &outer);
  {
    SignalReader reader;
    raise(SIGHUP);
    raise(SIGTERM);
    EXPECT_EQ(std::vector<int>{SIGTERM}, reader.take());
  }
  sigaction(SIGHUP, &outer, nullptr);
}

// Another node, played by a pipe.
class PlayedNode : public OtherNodes {
 public:
  PlayedNode() { EXPECT_EQ(0, ::pipe(pipe_)); }
  ~PlayedNode() override {
    for (int fd : pipe_) ::close(fd);
  }
  void say(News news) {
    news_ = news;
    EXPECT_EQ(1, ::write(pipe_[1], "x", 1));
  }
  int fd() const override { return pipe_[0]; }
  News take() override {
    char byte;
    EXPECT_EQ(1, ::read(pipe_[0], &byte, 1));
    return news_;
  }
  void tell_failure(const RankEnd& root, const std::vector<RankEnd>&) override { failed_ = root.rank; }
  void tell_interrupt(int signal, int rank) override {
    interrupt_ = signal;
    interrupted_ = rank;
  }
  void tell_interrupted_rank(int rank) override { noted_ = rank; }
  void tell_stopped(int rank, int signal) override {
    stopped_.emplace_back(rank, signal);
    if (signal == 0) std::ofstream(goes_on_).close();
  }

  int failed_ = -1;
  int interrupt_ = 0, interrupted_ = -1, noted_ = -1;
  std::vector<std::pair<int, int>> stopped_;
  std::filesystem::path goes_on_;

 private:
  int pipe_[2];
  News news_;
};

TEST_F(SupervisorTest, AnotherNodesFailureStopsTheRanksHere) {
  PlayedNode node;
  others_ = &node;
  node.say({.stop = true});
  const AttemptResult result = run("sleep 60", 2);
  EXPECT_TRUE(result.stopped_from_outside);
  EXPECT_EQ(nullptr, root_cause(result.ends));
  EXPECT_EQ(-1, node.failed_);
}

TEST_F(SupervisorTest, RanksHaveTimeToAgreeWithAFinalCodeOfAnotherNode) {
  PlayedNode node;
  others_ = &node;
  node.say({.stop = true, .is_final = true});
  AttemptResult result =
      run("touch $TANDEM_FINAL_FILE; sleep 0.$RANK; echo 'tandem: error: bad key' >&2; exit 2", 3);
  EXPECT_TRUE(result.stopped_from_outside);
  ASSERT_NE(nullptr, root_cause(result.ends));
  EXPECT_TRUE(all_alike(*root_cause(result.ends), result.ends));

  setup_.agreement_grace = std::chrono::milliseconds(100);
  node.say({.stop = true, .is_final = true});
  result = run("sleep 60", 2);  // they do not find it
  EXPECT_TRUE(result.stopped_from_outside);
  EXPECT_EQ(nullptr, root_cause(result.ends));
}

TEST_F(SupervisorTest, RanksThatAllMissedAPeerLeaveTheWordToItsNode) {
  PlayedNode node;
  others_ = &node;
  const auto later = std::async(std::launch::async, [&] {
    ::usleep(300000);
    node.say({.stop = true});
  });
  const AttemptResult result = run("touch $TANDEM_LOST_PEER_FILE; exit 1", 2);
  EXPECT_TRUE(result.stopped_from_outside);
  EXPECT_NE(-1, node.failed_);  // ... and is told then, which changes nothing
}

TEST_F(SupervisorTest, OtherNodesLearnOfAFailureAndOfASignal) {
  PlayedNode node;
  others_ = &node;
  run("[ $RANK = 1 ] && exit 1; sleep 60", 2);
  EXPECT_EQ(1, node.failed_);
  // Not SIGINT: a shell that is about to start `sleep` minds it only when that has ended.
  run("kill -TERM $PPID; sleep 60", 1);
  EXPECT_EQ(SIGTERM, node.interrupt_);
  EXPECT_EQ(-1, node.interrupted_);
}

TEST_F(SupervisorTest, OtherNodesLearnWhoWasInterruptedAndWhoWasStopped) {
  PlayedNode node;
  others_ = &node;
  run("echo 15 > $TANDEM_INTERRUPTED_FILE; exit 75", 1);
  EXPECT_EQ(0, node.noted_);
  node.goes_on_ = directory_.path() / "goes_on";
  run("while ! [ -e goes_on ]; do sleep 0.05; kill -CONT $$; done & kill -STOP $$; while ! [ -e goes_on ]; "
      "do sleep 0.01; done",
      1);
  EXPECT_EQ((std::vector<std::pair<int, int>>{{0, SIGSTOP}, {0, 0}}), node.stopped_);
}

}  // namespace
}  // namespace tandem
