#include "tandem/data/mixture.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "tandem/data/loader.h"

namespace tandem {
namespace {

// Sample i of set s is the token 1000 s + i, and so is its target.
class Numbers final : public Dataset {
 public:
  Numbers(int32_t set, int64_t count) : set_(set), count_(count) {}
  SampleSpec spec() const override { return {.context = 1, .num_classes = 1000 * (set_ + 1)}; }
  int64_t num_samples() const override { return count_; }
  void fill(int64_t index, const SampleBuffers& out) const override {
    out.tokens[0] = out.targets[0] = 1000 * set_ + static_cast<int32_t>(index);
  }

 private:
  int32_t set_;
  int64_t count_;
};

const std::vector<double> kWeights = {0.7, 0.05, 0.25};

Mixture mixture(const std::vector<double>& weights = kWeights) {
  std::vector<Mixture::Set> sets;
  const int64_t sizes[] = {300, 7, 50};
  for (size_t i = 0; i < weights.size(); ++i)
    sets.push_back({std::make_unique<Numbers>(static_cast<int32_t>(i), sizes[i]), weights[i]});
  return Mixture(std::move(sets));
}

// The next `count` global batches of all ranks, in the order of the global batch.
struct Ranks {
  Ranks(const Dataset& data, int64_t world, int64_t workers) {
    for (int64_t rank = 0; rank < world; ++rank) {
      const LoaderOptions options{
          .global_batch = 8, .micro_batch = 2, .rank = rank, .world_size = world, .workers = workers};
      memory.push_back(std::make_unique<Memory>());
      loaders.push_back(std::make_unique<Loader>(data, options, memory.back()->bytes));
    }
  }
  std::vector<int32_t> batches(int count) {
    std::vector<int32_t> tokens;
    for (int batch = 0; batch < count; ++batch) {
      for (auto& loader : loaders) {
        for (int64_t i = 0; i < loader->micro_batches_in(loader->batch_size()); ++i) {
          const MicroBatch micro = loader->next();
          tokens.insert(tokens.end(), micro.tokens, micro.tokens + 2);
        }
      }
    }
    return tokens;
  }
  struct Memory {
    alignas(Loader::kAlignment) std::byte bytes[4096];
  };
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<std::unique_ptr<Loader>> loaders;
};

TEST(MixtureOrder, GivesEachSetItsShareFromTheBeginningOn) {
  const MixtureOrder order(kWeights, 3);
  std::vector<int64_t> counts(3);
  for (int64_t sample = 0; sample < 10000; ++sample) {
    ASSERT_EQ(order.counts(sample), counts);
    for (size_t set = 0; set < 3; ++set)
      ASSERT_NEAR(static_cast<double>(counts[set]), kWeights[set] * static_cast<double>(sample), 3);
    const MixtureOrder::Draw draw = order(sample);
    ASSERT_EQ(draw.number, counts[draw.set]++);
  }
  EXPECT_EQ(counts[0] + counts[1] + counts[2], 10000);
}

TEST(MixtureOrder, IsNoPatternAndAnotherForEachSeed) {
  const std::vector<double> weights = {1, 1};
  std::map<std::string, int> seen;  // of four draws in a row
  const auto draws = [&](uint64_t seed, int64_t first) {
    const MixtureOrder order(weights, seed);
    std::string text;
    for (int64_t i = first; i < first + 4; ++i) text += order(i).set == 0 ? 'a' : 'b';
    return text;
  };
  for (int64_t first = 0; first < 2000; first += 4) ++seen[draws(1, first)];
  EXPECT_EQ(seen.size(), 4u);  // abab, abba, baab, baba: one of each in every stretch
  int differ = 0;
  for (int64_t first = 0; first < 100; first += 4) differ += draws(1, first) != draws(2, first);
  EXPECT_GT(differ, 5);
}

TEST(MixtureOrder, HoldsForTinyWeightsAndFarSamples) {
  const std::vector<double> weights = {1e-9, 1.0, 1e6, 3.0};
  const MixtureOrder order(weights, 1);
  const int64_t far = int64_t{1} << 40;
  const std::vector<int64_t> counts = order.counts(far);
  EXPECT_EQ(counts[0] + counts[1] + counts[2] + counts[3], far);
  EXPECT_NEAR(static_cast<double>(counts[1]), static_cast<double>(far) / 1000004, 300);
  EXPECT_EQ(order(far).number, counts[order(far).set]);
}

TEST(Mixture, TakesEverySampleOfASetOnceInItsEpoch) {
  const Mixture data = mixture();
  const Sampler sampler(data.parts(), true, 1);
  std::map<int32_t, std::map<int32_t, int>> seen;  // set, sample: how often
  for (int64_t i = 0; i < 400; ++i) {
    int32_t token = 0, target = 0;
    data.fill(sampler.index(i), {.tokens = &token, .targets = &target});
    ++seen[token / 1000][token % 1000];
  }
  EXPECT_EQ(data.spec().num_classes, 3000);
  EXPECT_EQ(data.num_samples(), 357);
  for (const auto& [sample, times] : seen[0]) EXPECT_EQ(times, 1);  // 280 of 300
  for (int32_t sample = 0; sample < 7; ++sample) EXPECT_NEAR(seen[1][sample], 3, 1);
  for (int32_t sample = 0; sample < 50; ++sample) EXPECT_EQ(seen[2][sample], 2);  // 100 of 50
}

TEST(Mixture, IsTheSameOnAnyNumberOfRanksAndWorkers) {
  const Mixture data = mixture();
  const std::vector<int32_t> one = Ranks(data, 1, 0).batches(60);
  EXPECT_EQ(Ranks(data, 2, 0).batches(60), one);
  EXPECT_EQ(Ranks(data, 4, 2).batches(60), one);
}

TEST(Mixture, GoesOnWhereItWas) {
  const Mixture data = mixture();
  const std::vector<int32_t> all = Ranks(data, 1, 0).batches(60);
  Ranks again(data, 2, 2);
  for (auto& loader : again.loaders) loader->seek(8 * 23, MixtureStart{});
  const std::vector<int32_t> rest = again.batches(37);
  EXPECT_EQ(rest, std::vector<int32_t>(all.begin() + 8 * 23, all.end()));
}

TEST(Mixture, NoSetLosesItsPlaceWhenWeightsChange) {
  const Mixture before = mixture(), after = mixture({0.1, 0.1, 0.8});
  Sampler sampler(before.parts(), true, 1);
  std::multiset<int64_t> seen;
  for (int64_t i = 0; i < 100; ++i) seen.insert(sampler.index(i));
  Sampler other(after.parts(), true, 1);
  other.begin({100, sampler.positions(100)});
  EXPECT_EQ(other.positions(100), sampler.positions(100));
  for (int64_t i = 100; i < 120; ++i) seen.insert(other.index(i));
  for (int64_t index = 0; index < 300; ++index) EXPECT_LE(seen.count(index), 1u) << index;
  for (int64_t index = 307; index < 357; ++index) EXPECT_LE(seen.count(index), 1u) << index;
}

TEST(Mixture, OfOneSetIsThatSetAndEvaluationTakesAllOnce) {
  Sampler alone(300, true, 5), part(std::vector<DatasetPart>{{300, 0.3}}, true, 5);
  for (int64_t i = 0; i < 700; ++i) EXPECT_EQ(alone.index(i), part.index(i));
  const Mixture data = mixture();
  const Sampler in_order(data.num_samples(), false, 1);
  for (int64_t i = 0; i < 357; ++i) EXPECT_EQ(in_order.index(i), i);
}

}  // namespace
}  // namespace tandem
