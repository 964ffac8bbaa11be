#include "tandem/convert/sizes.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem::convert {
namespace {

Draft sized(const Sizes& sizes) {
  Draft draft;
  set_sizes(sizes, "f.json", draft);
  return draft;
}

TEST(Sizes, ABatchAndItsPartsGiveTheRanks) {
  const Draft draft = sized({.batch = 64, .micro_batch = 4, .accumulation = 2});
  EXPECT_EQ(64, *draft.get("train.batch"));
  EXPECT_EQ(4, *draft.get("train.micro_batch"));
  EXPECT_EQ(8, *draft.get("parallel.data"));
  EXPECT_EQ("ddp", *draft.get("parallel.strategy"));
  EXPECT_EQ(1u, draft.findings().size());
}

TEST(Sizes, PartsAndRanksGiveTheBatch) {
  const Draft draft = sized({.ranks = 16, .micro_batch = 4, .accumulation = 2, .tensor = 2, .pipeline = 2});
  EXPECT_EQ(32, *draft.get("train.batch"));
  EXPECT_EQ(4, *draft.get("parallel.data"));
  EXPECT_EQ(2, *draft.get("parallel.tensor"));
}

TEST(Sizes, WithoutRanksOneIsAssumedAndTold) {
  const Draft draft = sized({.micro_batch = 4, .accumulation = 2});
  EXPECT_EQ(8, *draft.get("train.batch"));
  EXPECT_FALSE(draft.has("parallel.data"));
  ASSERT_EQ(1u, draft.findings().size());
  EXPECT_NE(std::string::npos, to_string(draft.findings()[0]).find("--ranks"));
}

TEST(Sizes, ABatchAndPassesGiveTheMicroBatch) {
  EXPECT_EQ(4, *sized({.ranks = 8, .batch = 64, .accumulation = 2}).get("train.micro_batch"));
}

TEST(Sizes, PassesThatCannotBeKeptAreTold) {
  const Draft draft = sized({.batch = 64, .accumulation = 2});
  EXPECT_FALSE(draft.has("train.micro_batch"));
  EXPECT_EQ(1u, draft.findings().size());
}

TEST(Sizes, WhatContradictsItselfIsRefused) {
  EXPECT_THROW(sized({.batch = 65, .micro_batch = 4, .accumulation = 2}), ConfigError);
  EXPECT_THROW(sized({.ranks = 3, .batch = 64, .micro_batch = 4, .accumulation = 2}), ConfigError);
  EXPECT_THROW(sized({.ranks = 3, .micro_batch = 4, .tensor = 2}), ConfigError);
  EXPECT_THROW(sized({.micro_batch = 0}), ConfigError);
  EXPECT_THROW(sized({.ranks = 1 << 30, .micro_batch = 1 << 30, .accumulation = 1 << 30}), ConfigError);
}

}  // namespace
}  // namespace tandem::convert
