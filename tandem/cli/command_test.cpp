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

// What scripts rely on: a flag may come, but none goes or changes its name unnoticed.
TEST(Commands, HaveTheFlagsTheyAreKnownBy) {
  using Add = void (*)(CLI::App&, Action&);
  const struct {
    const char* name;
    Add add;
    std::vector<std::string> flags;
  } commands[] = {
      {"train",
       add_train,
       {"CONFIG", "--set", "--device", "--insecure", "--run-dir", "--resume-from-checkpoint"}},
      {"plan", add_plan, {"CONFIG", "--set", "--device", "--json", "--commands", "--dump", "--without"}},
      {"explain", add_explain, {"CONFIG", "--set"}},
      {"profile", add_profile, {"CONFIG", "--set", "--device", "--steps", "--json", "--trace"}},
      {"bench", add_bench, {"CONFIG", "--set", "--device", "--steps", "--warmup", "--json"}},
      {"evaluate", add_evaluate, {"CHECKPOINT", "--set", "--samples", "--json"}},
      {"sample", add_sample, {"CHECKPOINT", "--set", "--prompt", "--tokens", "--temperature", "--seed"}},
      {"inspect", add_inspect, {"CHECKPOINT", "--compare", "--all", "--tensors", "--verify"}},
      {"copy", add_copy, {"SRC", "DST"}},
      {"gc", add_gc, {"STORE", "--delete", "--older-than"}},
      {"prepare", add_prepare, {"FILES", "--out", "--tokenizer", "--shard-tokens"}},
      {"launch", add_launch, {"--nproc-per-node", "--nnodes", "--node-rank", "--rdzv-id", "--max-restarts"}},
  };
  for (const auto& command : commands) {
    CLI::App app("", "tandem");
    Action action;
    command.add(app, action);
    const CLI::App* made = app.get_subcommand(command.name);
    for (const std::string& flag : command.flags)
      EXPECT_NE(made->get_option_no_throw(flag), nullptr) << command.name << " " << flag;
  }
}

TEST(Commands, OfAPlanTakeSeveralPassesToLeaveOut) {
  CLI::App app("", "tandem");
  Action action;
  add_plan(app, action);
  app.parse("plan a.yaml --without fuse --without recompute");
  EXPECT_EQ(app.get_subcommand("plan")->get_option("--without")->results(),
            (std::vector<std::string>{"fuse", "recompute"}));
  EXPECT_TRUE(action.run);
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
