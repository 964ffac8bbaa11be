#include "tandem/data/images/mixed_images.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tandem/data/fingerprint.h"
#include "tandem/data/loader.h"
#include "tandem/data/shapes.h"

namespace tandem {
namespace {

constexpr int64_t kSide = 16;

MixedImages mixed(double alpha) { return {std::make_unique<Shapes>(kSide, Split::Train, 1), alpha, 1}; }

struct Sample {
  std::vector<float> image = std::vector<float>(kSide * kSide * 3);
  int32_t target = -2, partner = -2;
  float share = -1;
};

Sample sample_of(const Dataset& set, int64_t index, int64_t draw) {
  Sample sample;
  set.fill(index, {.image = sample.image.data(),
                   .targets = &sample.target,
                   .partner = &sample.partner,
                   .share = &sample.share,
                   .draw = draw});
  return sample;
}

// Mean 1/2, variance 1 / (4 (2 alpha + 1)), symmetric.
TEST(DrawBeta, HasTheMomentsOfTheDistribution) {
  for (const double alpha : {0.05, 0.2, 0.7, 1.0, 1.5, 4.0, 40.0}) {
    constexpr int kCount = 40000;
    double sum = 0, squares = 0, cubes = 0;
    for (int i = 0; i < kCount; ++i) {
      RngCursor draw(5, static_cast<uint64_t>(i));
      const double x = draw_beta(alpha, draw) - 0.5;
      EXPECT_LE(std::abs(x), 0.5);
      sum += x;
      squares += x * x;
      cubes += x * x * x;
    }
    const double variance = 1 / (4 * (2 * alpha + 1)), error = 4 / std::sqrt(kCount);
    EXPECT_NEAR(sum / kCount, 0, std::sqrt(variance) * error) << alpha;
    EXPECT_NEAR(squares / kCount / variance, 1, 2 * error) << alpha;
    EXPECT_NEAR(cubes / kCount, 0, variance * error) << alpha;
  }
}

TEST(DrawBeta, TinyAlphasGiveEnds) {
  for (uint64_t i = 0; i < 100; ++i) {
    RngCursor draw(1, i);
    const double x = draw_beta(1e-4, draw);
    EXPECT_LT(std::min(x, 1 - x), 0.05);
  }
}

TEST(MixedImages, AreMeansOfTwoAndSayWhichAndHowMuch) {
  const MixedImages set = mixed(1.0);
  const Shapes plain(kSide, Split::Train, 1);
  EXPECT_TRUE(set.spec().mixed);
  int strangers = 0;
  for (int64_t i = 0; i < 20; ++i) {
    const Sample made = sample_of(set, i, 100 + i);
    const Sample own = sample_of(plain, i, -1);
    EXPECT_EQ(made.target, own.target);
    EXPECT_GE(made.share, 0.5f);
    EXPECT_LT(made.share, 1.0f);
    EXPECT_GE(made.partner, 0);
    strangers += made.partner != made.target;
    // What is not its own is some image of the set: all of its pixels lie where images' do.
    for (size_t p = 0; p < made.image.size(); ++p) {
      const float rest = (made.image[p] - made.share * own.image[p]) / (1 - made.share);
      EXPECT_LE(std::abs(rest), 2.1f);
    }
  }
  EXPECT_GT(strangers, 5);
}

TEST(MixedImages, DependOnTheDrawAlone) {
  const MixedImages set = mixed(0.2), again = mixed(0.2);
  EXPECT_EQ(sample_of(set, 3, 77).image, sample_of(again, 3, 77).image);
  EXPECT_NE(sample_of(set, 3, 77).image, sample_of(set, 3, 78).image);
}

TEST(MixedImages, OutsideOfTrainingAreTheirOwn) {
  const Sample own = sample_of(mixed(0.2), 3, -1);
  EXPECT_EQ(own.image, sample_of(Shapes(kSide, Split::Train, 1), 3, -1).image);
  EXPECT_EQ(own.partner, own.target);
  EXPECT_EQ(own.share, 1.0f);
  EXPECT_EQ(fingerprint(mixed(0.2)), fingerprint(Shapes(kSide, Split::Train, 1)));  // a run may begin to mix
}

// Any number of ranks and workers, and after a seek.
TEST(MixedImages, LoadersGiveEveryRankItsPartOfTheSame) {
  const MixedImages set = mixed(0.4);
  const auto seen = [&](int64_t workers, int64_t rank, int64_t world, int64_t from) {
    const LoaderOptions load{
        .global_batch = 8, .micro_batch = 4, .rank = rank, .world_size = world, .workers = workers};
    const auto bytes = static_cast<size_t>(loader_bytes(set.spec(), load));
    std::vector<std::byte> memory(bytes + Loader::kAlignment);
    void* start = memory.data();
    size_t space = memory.size();
    std::align(Loader::kAlignment, bytes, start, space);
    Loader loader(set, load, {static_cast<std::byte*>(start), bytes});
    loader.seek(from);
    std::vector<std::pair<std::vector<int32_t>, std::vector<float>>> batches;
    for (int i = 0; i < 8 / static_cast<int>(world); ++i) {
      const MicroBatch batch = loader.next();
      batches.push_back({{batch.partners, batch.partners + 4}, {batch.shares, batch.shares + 4}});
      batches.back().second.insert(batches.back().second.end(), batch.images,
                                   batch.images + 4 * set.spec().input_elems());
    }
    return batches;
  };
  const auto alone = seen(0, 0, 1, 40);
  EXPECT_EQ(alone, seen(3, 0, 1, 40));
  const auto first = seen(2, 0, 2, 40), second = seen(1, 1, 2, 40);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i], alone[2 * i]);
    EXPECT_EQ(second[i], alone[2 * i + 1]);
  }
  EXPECT_EQ(seen(2, 0, 1, 48)[0], alone[2]);
}

}  // namespace
}  // namespace tandem
