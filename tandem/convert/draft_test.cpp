#include "tandem/convert/draft.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem::convert {
namespace {

TEST(Draft, PrintsKeysInTheOrderOfTheTable) {
  Draft draft;
  draft.set("train.lr", 3e-4);
  draft.set("precision", "bf16");
  draft.set("model.from", "a b");
  draft.set("memory.offload", Value::array({"params", "optimizer"}));
  draft.set("train.steps", 10);
  EXPECT_EQ(
      "model:\n  from: \"a b\"\ntrain:\n  steps: 10\n  lr: 0.0003\nprecision: bf16\nmemory:\n  offload: "
      "[params, optimizer]\n",
      draft.yaml());
}

TEST(Draft, HintsAreCommentsThatCloseNoSection) {
  Draft draft;
  draft.set("train.steps", 10);
  draft.set("train.lr", 1);
  draft.hint("train.batch", "32", "fill it in");
  EXPECT_EQ("train:\n  steps: 10\n  # batch: 32\n  lr: 1\n", draft.yaml());
  draft.hint("model.from", "DIR", "fill it in");
  EXPECT_TRUE(draft.yaml().starts_with("# model: {from: DIR}\ntrain:\n"));
  ASSERT_EQ(2u, draft.findings().size());
  EXPECT_EQ("to do: train.batch: fill it in", to_string(draft.findings().front()));
}

TEST(Draft, SaysWhatWasLostAndAssumedInOneLineEach) {
  Draft draft;
  draft.lost("a.b", Value::parse(R"(["x", 1])"), "no such thing");
  draft.assumed("train.batch", 8, "one rank");
  EXPECT_EQ("no counterpart: a.b = [\"x\",1]: no such thing", to_string(draft.findings()[0]));
  EXPECT_EQ("assumed: train.batch = 8: one rank", to_string(draft.findings()[1]));
}

TEST(Draft, KnowsOurKeysOnly) {
  Draft draft;
  EXPECT_THROW(draft.set("train.no_such_key", 1), BugError);
}

}  // namespace
}  // namespace tandem::convert
