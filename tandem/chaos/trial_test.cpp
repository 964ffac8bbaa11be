#include "tandem/chaos/trial.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tandem/base/error.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem::chaos {
namespace {

// In the program's place: a launcher of one rank that leaves a run directory, and an inspection that finds
// what the test wants it to.
class TrialTest : public testing::Test {
 protected:
  chaos::Setup setup(const std::string& train, const std::string& compare) {
    chaos::Setup setup;
    setup.program = (directory_.path() / "program").string();
    setup.directory = directory_.path() / "trials";
    std::ofstream(setup.program) << "#!/bin/sh\n"
                                    "for last; do :; done\n"
                                    "if [ $1 = launch ]; then mkdir -p $last/checkpoints; (export RANK=0; " +
                                        train + ") & wait $!; exit $?; fi\ncase \"$*\" in *--compare*) " +
                                        compare + ";; esac\nexit 0\n";
    std::filesystem::permissions(setup.program, std::filesystem::perms::owner_all);
    return setup;
  }
  static Fault fault(Kind kind) { return {.kind = kind, .at = 0.5, .rank = 0, .where = 0}; }

  TemporaryDirectory directory_;
};

TEST_F(TrialTest, SurvivesWhereTheRunEndsAndEqualsTheOther) {
  const chaos::Setup plain = setup("sleep 0.3", "true");
  const double seconds = run_undisturbed(plain);
  EXPECT_GE(seconds, 0.3);
  for (const Kind kind : {Kind::Term, Kind::Flip}) {
    const Outcome outcome = run_trial(plain, fault(kind), 3, seconds);
    EXPECT_TRUE(outcome.survived) << outcome.wrong;
    EXPECT_FALSE(std::filesystem::exists(trial_directory(plain, 3)));
  }
}

TEST_F(TrialTest, SeesARunThatDiffers) {
  const chaos::Setup differs = setup("sleep 0.3", "echo step 5: loss 1 and 2; exit 1");
  const Outcome outcome = run_trial(differs, fault(Kind::Term), 0, 0.3);
  EXPECT_FALSE(outcome.survived);
  EXPECT_EQ(outcome.wrong, "differs from the undisturbed run: step 5: loss 1 and 2");
  EXPECT_TRUE(std::filesystem::exists(trial_directory(differs, 0))) << "evidence stays";
}

TEST_F(TrialTest, SeesARunThatDoesNotGoOn) {
  const chaos::Setup dies = setup("exec sleep 0.3", "true");
  const Outcome outcome = run_trial(dies, fault(Kind::Kill), 0, 0.3);
  EXPECT_FALSE(outcome.survived);
  EXPECT_NE(outcome.wrong.find("exit code 137"), std::string::npos) << outcome.wrong;
  EXPECT_THROW(run_undisturbed(setup("echo broken; false", "true")), TrainError);
}

TEST_F(TrialTest, SeesLeftovers) {
  const chaos::Setup untidy = setup("sleep 0.3; touch $last/checkpoints/.tmp-5", "true");
  EXPECT_EQ(run_trial(untidy, fault(Kind::Flip), 0, 0.3).wrong, ".tmp-5 is left lying about");
}

}  // namespace
}  // namespace tandem::chaos
