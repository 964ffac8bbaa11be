#include "tandem/base/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/error.h"

namespace tandem {
namespace {

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6 * want[i]) << i;
}

TEST(RopeFrequencies, PlainOnesArePowersOfTheta) {
  const RopeFrequencies turns = rope_frequencies(10000, 8, "none", 100);
  EXPECT_EQ(turns.values,
            (std::vector<double>{1, std::pow(1e4, -0.25), std::pow(1e4, -0.5), std::pow(1e4, -0.75)}));
  EXPECT_EQ(turns.factor, 1);
}

TEST(RopeFrequencies, LinearDividesAll) {
  expect_near(rope_frequencies(100, 4, "linear:factor=4", 8).values, {0.25, 0.025});
}

// Waves of 2 pi, 2 pi 10, 2 pi 100: the first is shorter than 32 / 4, the second between it and 128, the last
// longer.
TEST(RopeFrequencies, Llama3KeepsShortWavesAndStretchesLongOnes) {
  const double theta = 1e3;
  const RopeFrequencies turns = rope_frequencies(
      theta, 6, "llama3:factor=8,low_freq_factor=1,high_freq_factor=4,original_max_position_embeddings=128",
      8);
  const double wave = 2 * M_PI * 10, smooth = (128 / wave - 1) / 3;
  expect_near(turns.values, {1, (1 - smooth) * 0.1 / 8 + smooth * 0.1, 0.01 / 8});
}

TEST(RopeFrequencies, YarnGoesOverBetweenItsBounds) {
  const std::string text = "yarn:factor=4,original_max_position_embeddings=64,beta_fast=8,beta_slow=1";
  const RopeFrequencies turns = rope_frequencies(100, 8, text, 8);
  // Features 8 ln(64 / (2 pi 8)) / (2 ln 100) = 0.21 and 8 ln(64 / 2 pi) / (2 ln 100) = 2.02: from 0 to 3.
  std::vector<double> want;
  for (int i = 0; i < 4; ++i) {
    const double frequency = std::pow(100, -i / 4.0), ramp = i / 3.0;
    want.push_back(frequency * (1 - ramp) + frequency / 4 * ramp);
  }
  expect_near(turns.values, want);
  EXPECT_NEAR(turns.factor, 0.1 * std::log(4) + 1, 1e-12);
  EXPECT_EQ(rope_frequencies(100, 8, text + ",attention_factor=1.5", 8).factor, 1.5);
  EXPECT_NEAR(rope_frequencies(100, 8, text + ",mscale=2,mscale_all_dim=0.5", 8).factor,
              (0.2 * std::log(4) + 1) / (0.05 * std::log(4) + 1), 1e-12);
  EXPECT_NE(rope_frequencies(100, 8, text + ",truncate=0", 8).values, turns.values);
}

TEST(RopeFrequencies, LongropeChoosesByTheContext) {
  const std::string text =
      "longrope:short_factor=1 2,long_factor=4 "
      "8,original_max_position_embeddings=16,max_position_embeddings=64";
  expect_near(rope_frequencies(100, 4, text, 16).values, {1, 0.05});
  expect_near(rope_frequencies(100, 4, text, 17).values, {0.25, 0.0125});
  EXPECT_NEAR(rope_frequencies(100, 4, text, 16).factor, std::sqrt(1 + std::log(4) / std::log(16)), 1e-12);
}

TEST(RopeScaling, SaysWhatIsWrong) {
  EXPECT_EQ(rope_scaling_complaint("none", 8), "");
  EXPECT_EQ(rope_scaling_complaint("linear:factor=2", 8), "");
  EXPECT_EQ(rope_scaling_complaint("ntk:factor=2", 8),
            "expected none, or linear, llama3, yarn or longrope, then ':' and NAME=NUMBER,..., found 'ntk'");
  EXPECT_EQ(rope_scaling_complaint("linear", 8), "expected linear to have factor");
  EXPECT_EQ(rope_scaling_complaint("linear:factor=2,beta=1", 8),
            "expected linear to have factor only, found 'beta'");
  EXPECT_EQ(rope_scaling_complaint("linear:factor=two", 8), "expected a number of factor, found 'two'");
  EXPECT_EQ(rope_scaling_complaint("linear:factor=-1", 8), "expected positive numbers of factor");
  EXPECT_EQ(rope_scaling_complaint("linear:factor=1,factor=2", 8), "expected factor once");
  EXPECT_EQ(rope_scaling_complaint(
                "longrope:short_factor=1 2,long_factor=1 2 3,original_max_position_embeddings=4,factor=2", 4),
            "expected 2 numbers of long_factor, found 3");
  EXPECT_THROW(rope_frequencies(100, 8, "linear", 8), ConfigError);
}

}  // namespace
}  // namespace tandem
