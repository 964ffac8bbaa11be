#include "tandem/convert/rules.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem::convert {
namespace {

constexpr Rule kRules[] = {
    same("clip", "train.clip", "0"), same("lr", "train.lr"),  read("zero.stage"),
    lost("zero.deep", "deeper"),     lost("zero", "of zero"), lost("backend", "one backend", "\"nccl\""),
};

std::vector<std::string> told(const char* json, Draft& draft) {
  const Value root = Value::parse(json);
  apply_rules(Source("f.json", root), kRules, draft);
  std::vector<std::string> lines;
  for (const Finding& finding : draft.findings()) lines.push_back(to_string(finding));
  return lines;
}

TEST(Rules, CopyNumbersWhateverTheyAreWrittenAs) {
  Draft draft;
  EXPECT_TRUE(told(R"({"clip": "1e-1", "lr": 3.0})", draft).empty());
  EXPECT_EQ(0.1, *draft.get("train.clip"));
  EXPECT_EQ("3", draft.get("train.lr")->dump());
}

TEST(Rules, AnAbsentKeyMeansWhatTheOtherProgramTakes) {
  Draft draft;
  told(R"({"clip": null})", draft);
  EXPECT_EQ(0, *draft.get("train.clip"));
  EXPECT_FALSE(draft.has("train.lr"));
}

TEST(Rules, EveryKeyMeetsARowOrIsTold) {
  Draft draft;
  const std::vector<std::string> expected = {
      "no counterpart: zero.deep = {\"er\":2}: deeper", "no counterpart: zero.bucket = 5: of zero",
      "no counterpart: backend = gloo: one backend",
      "no counterpart: new.thing = x: unknown here; docs/config.md has every key of ours"};
  EXPECT_EQ(expected, told(R"({"zero": {"stage": 1, "deep": {"er": 2}, "bucket": 5}, "backend": "gloo",
                               "new": {"thing": "x"}})",
                           draft));
}

TEST(Rules, WhatSaysNothingIsNotTold) {
  Draft draft;
  EXPECT_TRUE(
      told(R"({"zero": {"bucket": false, "list": [], "none": null}, "backend": "nccl", "new": "no"})", draft)
          .empty());
}

TEST(Rules, AutoIsLeftToWhoKnows) {
  Draft draft;
  EXPECT_EQ(1u, told(R"({"lr": "auto"})", draft).size());
  Draft knows;
  knows.set("train.lr", 0.5);
  EXPECT_TRUE(told(R"({"lr": "auto"})", knows).empty());
  EXPECT_EQ(0.5, *knows.get("train.lr"));
}

TEST(Rules, AListIsNoNumber) {
  Draft draft;
  EXPECT_THROW(told(R"({"lr": [1]})", draft), ConfigError);
}

}  // namespace
}  // namespace tandem::convert
