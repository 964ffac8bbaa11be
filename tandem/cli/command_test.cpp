#include "tandem/cli/command.h"

#include <gtest/gtest.h>

#include "tandem/cli/checkpoint_session.h"

namespace tandem::cli {
namespace {

TEST(Commands, ShowExamplesThatNameTheProgramTheyAreIn) {
  CLI::App app("", "own_model");
  const CLI::App* command = add_command(app, "train", "train it",
                                        "tandem train a.yaml\n  tandem train b.yaml --run-dir x/tandem y");
  EXPECT_EQ(command->get_footer(),
            "Example:\n  own_model train a.yaml\n  own_model train b.yaml --run-dir x/tandem y");
}

TEST(Commands, OfAConfigTakeChangesInTheirOrderAndTheDeviceLast) {
  CLI::App app("", "tandem");
  CLI::App* command = app.add_subcommand("plan");
  ConfigFlags flags;
  flags.add_to(*command);
  app.parse("plan a.yaml --set train.lr=1 --device cpu --set train.lr=2");
  EXPECT_EQ(flags.file, "a.yaml");
  EXPECT_EQ(flags.sets, (std::vector<std::string>{"train.lr=1", "train.lr=2"}));
  EXPECT_EQ(flags.device, "cpu");
  const std::vector<Override> overrides = overrides_of(flags.sets);
  ASSERT_EQ(overrides.size(), 2u);
  EXPECT_EQ(overrides[1].assignment, "train.lr=2");
}

TEST(Commands, OfACheckpointHaveTheSameFlagsForIt) {
  CLI::App app("", "tandem");
  Action action;
  add_evaluate(app, action);
  add_sample(app, action);
  for (const char* name : {"CHECKPOINT", "--set"}) {
    const CLI::Option* first = app.get_subcommand("evaluate")->get_option(name);
    const CLI::Option* second = app.get_subcommand("sample")->get_option(name);
    EXPECT_EQ(first->get_description(), second->get_description());
    EXPECT_EQ(first->get_required(), second->get_required());
  }
}

TEST(Commands, RefuseNumbersThatAreNone) {
  EXPECT_EQ(whole_number(1)("1"), "");
  EXPECT_EQ(whole_number(1)("0"), "expected a whole number of at least 1, found '0'");
  EXPECT_EQ(whole_number(0)("2x"), "expected a whole number of at least 0, found '2x'");
  EXPECT_EQ(number(0)("0.5"), "");
  EXPECT_EQ(number(0)("nan"), "expected a number of at least 0, found 'nan'");
}

}  // namespace
}  // namespace tandem::cli
