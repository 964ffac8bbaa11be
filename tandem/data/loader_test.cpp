#include "tandem/data/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <set>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/data/shapes.h"

namespace tandem {
namespace {

// Token 0 of a sample is its index; sample i has i % 3 + 1 targets of 3.
class Numbered final : public Dataset {
 public:
  explicit Numbered(int64_t size, bool in_order = false) : size_(size), in_order_(in_order) {}
  SampleSpec spec() const override { return {.kind = SampleKind::Tokens, .context = 3, .num_classes = 1000}; }
  int64_t num_samples() const override { return size_; }
  int64_t num_valid_targets(int64_t index) const override { return index % 3 + 1; }
  bool is_in_order() const override { return in_order_; }
  void fill(int64_t index, const SampleBuffers& out) const override {
    if (index == broken) throw DataError("sample {}: broken", index);
    for (int64_t t = 0; t < 3; ++t) {
      out.tokens[t] = static_cast<int32_t>(index + t);
      out.targets[t] = t < num_valid_targets(index) ? static_cast<int32_t>(index + t + 1) : kNoTarget;
    }
    ++num_filled;
  }

  std::atomic<int64_t> broken{-1};
  mutable std::atomic<int64_t> num_filled{0};

 private:
  int64_t size_;
  bool in_order_;
};

struct Arena {
  explicit Arena(int64_t bytes)
      : size(static_cast<size_t>(bytes)),
        data(static_cast<std::byte*>(::operator new (size, std::align_val_t{Loader::kAlignment}))) {}
  ~Arena() { ::operator delete (data, std::align_val_t{Loader::kAlignment}); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  size_t size;
  std::byte* data;
};

// A loader with its memory.
struct Loading {
  Loading(const Dataset& dataset, const LoaderOptions& options)
      : arena(loader_bytes(dataset.spec(), options)), loader(dataset, options, {arena.data, arena.size}) {}
  Arena arena;
  Loader loader;
};

struct Seen {
  std::vector<int32_t> indices, targets;
  int64_t epoch, first_sample, num_valid_targets;
  bool operator==(const Seen&) const = default;
};

Seen see(Loader& loader, int64_t micro_batch) {
  const MicroBatch batch = loader.next();
  Seen seen{{},
            {batch.targets, batch.targets + micro_batch * 3},
            batch.epoch,
            batch.first_sample,
            batch.num_valid_targets};
  for (int64_t row = 0; row < micro_batch; ++row) seen.indices.push_back(batch.tokens[row * 3]);
  return seen;
}

std::vector<Seen> see_many(Loader& loader, int64_t micro_batch, int count) {
  std::vector<Seen> all;
  for (int i = 0; i < count; ++i) all.push_back(see(loader, micro_batch));
  return all;
}

TEST(Loader, DeliversTheSameForAnyNumberOfWorkersAndAnyPrefetch) {
  const Numbered set(37);
  LoaderOptions options{.global_batch = 8, .micro_batch = 2};
  Loading synchronous(set, options);
  const auto expected = see_many(synchronous.loader, 2, 60);
  for (const int64_t workers : {1, 4}) {
    for (const int64_t prefetch : {1, 2, 7}) {
      options.workers = workers;
      options.prefetch = prefetch;
      Loading loading(set, options);
      EXPECT_EQ(see_many(loading.loader, 2, 60), expected) << workers << " workers, prefetch " << prefetch;
    }
  }
}

TEST(Loader, VisitsEverySampleOncePerEpochInANewOrder) {
  const Numbered set(12);
  Loading loading(set, {.global_batch = 4, .micro_batch = 2, .workers = 2});
  std::vector<std::vector<int32_t>> epochs(3);
  for (const Seen& seen : see_many(loading.loader, 2, 18)) {
    for (const int32_t index : seen.indices) epochs[static_cast<size_t>(seen.epoch)].push_back(index);
  }
  for (const auto& epoch : epochs) EXPECT_EQ(std::set<int32_t>(epoch.begin(), epoch.end()).size(), 12u);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(Loader, DealsMicroBatchesInTurnToAnyNumberOfRanks) {
  const Numbered set(60);
  const LoaderOptions whole{.global_batch = 10, .micro_batch = 2, .dealt = true};
  Loading alone(set, whole);
  const std::vector<Seen> all = see_many(alone.loader, 2, 10);  // two batches of five micro-batches
  for (const int64_t ranks : {2, 3, 4, 7}) {
    const int64_t turns = (5 + ranks - 1) / ranks;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      for (const int64_t workers : {0, 2}) {
        LoaderOptions options = whole;
        options.rank = rank;
        options.world_size = ranks;
        options.workers = workers;
        Loading loading(set, options);
        EXPECT_EQ(loading.loader.micro_batches_in(10), turns);
        for (int64_t i = 0; i < 2 * turns; ++i) {
          EXPECT_EQ(loading.loader.position(), i / turns * 10);
          const int64_t number = i % turns * ranks + rank;
          if (number < 5) {
            EXPECT_EQ(see(loading.loader, 2), all[static_cast<size_t>(i / turns * 5 + number)]);
            continue;
          }
          const MicroBatch none = loading.loader.next();
          EXPECT_EQ(none.num_valid_targets, 0);
          for (int64_t t = 0; t < 6; ++t) EXPECT_EQ(none.targets[t], kNoTarget);
        }
      }
    }
  }
}

TEST(Loader, SeekEqualsReadingThrough) {
  const Numbered set(23);
  for (const int64_t workers : {0, 3}) {
    const LoaderOptions options{.global_batch = 4, .micro_batch = 2, .workers = workers};
    Loading through(set, options);
    see_many(through.loader, 2, 14);
    const int64_t position = through.loader.position();
    EXPECT_EQ(position, 28);
    Loading jumped(set, options);
    see_many(jumped.loader, 2, 3);
    jumped.loader.seek(position);
    EXPECT_EQ(jumped.loader.position(), position);
    EXPECT_EQ(see_many(jumped.loader, 2, 20), see_many(through.loader, 2, 20));
    EXPECT_EQ(jumped.loader.position(), through.loader.position());
  }
}

TEST(Loader, GoesOnWithAnotherBatchSizeWithoutSkippingOrRepeating) {
  const Numbered set(40);
  Loading before(set, {.global_batch = 6, .micro_batch = 3});
  Loading after(set, {.global_batch = 10, .micro_batch = 5, .workers = 2});
  std::set<int32_t> indices;
  for (const Seen& seen : see_many(before.loader, 3, 4))
    indices.insert(seen.indices.begin(), seen.indices.end());
  after.loader.seek(before.loader.position());
  for (const Seen& seen : see_many(after.loader, 5, 4)) {
    if (seen.epoch == 0) indices.insert(seen.indices.begin(), seen.indices.end());
  }
  EXPECT_EQ(indices.size(), 12u + 20u);
}

TEST(Loader, PositionCountsOnlyFinishedGlobalBatches) {
  const Numbered set(100);
  Loading loading(set, {.global_batch = 8, .micro_batch = 2});
  see_many(loading.loader, 2, 3);
  EXPECT_EQ(loading.loader.position(), 0);
  see_many(loading.loader, 2, 1);
  EXPECT_EQ(loading.loader.position(), 8);
}

TEST(Loader, RanksTogetherReadWhatOneRankReads) {
  const Numbered set(50);
  Loading alone(set, {.global_batch = 12, .micro_batch = 12});
  std::vector<std::unique_ptr<Loading>> ranks;
  for (int64_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::make_unique<Loading>(
        set,
        LoaderOptions{.global_batch = 12, .micro_batch = 2, .rank = rank, .world_size = 3, .workers = 1}));
  }
  for (int batch = 0; batch < 9; ++batch) {
    std::vector<int32_t> together;
    int64_t valid = 0;
    for (auto& rank : ranks) {
      for (const Seen& seen : see_many(rank->loader, 2, 2)) {
        together.insert(together.end(), seen.indices.begin(), seen.indices.end());
        valid += seen.num_valid_targets;
      }
    }
    EXPECT_EQ(ranks[1]->loader.valid_targets(batch * 12, 12), valid);
    const Seen whole = see(alone.loader, 12);
    EXPECT_EQ(together, whole.indices);
    EXPECT_EQ(valid, whole.num_valid_targets);
  }
}

TEST(Loader, CountsTheTargetsItDelivers) {
  const Numbered set(31);
  Loading loading(set, {.global_batch = 5, .micro_batch = 5, .workers = 2});
  for (const Seen& seen : see_many(loading.loader, 5, 20)) {
    const auto num_valid =
        std::count_if(seen.targets.begin(), seen.targets.end(), [](int32_t t) { return t >= 0; });
    EXPECT_EQ(seen.num_valid_targets, num_valid);
    EXPECT_EQ(loading.loader.valid_targets(seen.first_sample, 5), num_valid);
  }
}

TEST(Loader, SomeSamplesOfASetInOrderAreSpreadOverAllOfItAndAlwaysTheSame) {
  const Numbered set(900, /*in_order=*/true);
  const auto taken = [&](int64_t world_size, uint64_t seed) {
    std::set<int32_t> indices;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      Loading loading(set, {.pass = Pass::Once,
                            .global_batch = 4 * world_size,
                            .micro_batch = 4,
                            .rank = rank,
                            .world_size = world_size,
                            .seed = seed,
                            .max_samples = 90});
      for (int64_t i = 0; i < loading.loader.num_micro_batches(); ++i) {
        const Seen seen = see(loading.loader, 4);
        for (size_t row = 0; row < 4; ++row) {
          if (seen.targets[row * 3] != kNoTarget) {
            EXPECT_TRUE(indices.insert(seen.indices[row]).second);
          }
        }
      }
    }
    return indices;
  };
  const std::set<int32_t> once = taken(1, 1);
  EXPECT_EQ(once.size(), 90u);
  for (int third = 0; third < 3; ++third) {
    const auto count = std::count_if(once.begin(), once.end(), [&](int32_t i) { return i / 300 == third; });
    EXPECT_GE(count, 15) << third;
  }
  EXPECT_EQ(taken(3, 1), once);
  EXPECT_EQ(taken(1, 2), once);
}

TEST(Loader, PassesOnceInOrderAndPadsTheEnd) {
  const Numbered set(11);
  for (const int64_t workers : {0, 2}) {
    Loading loading(set, {.pass = Pass::Once, .global_batch = 8, .micro_batch = 4, .workers = workers});
    ASSERT_EQ(loading.loader.num_micro_batches(), 4);
    for (int pass = 0; pass < 2; ++pass) {
      int64_t valid = 0;
      std::vector<int32_t> indices, targets;
      for (const Seen& seen : see_many(loading.loader, 4, 4)) {
        indices.insert(indices.end(), seen.indices.begin(), seen.indices.end());
        targets.insert(targets.end(), seen.targets.begin(), seen.targets.end());
        valid += seen.num_valid_targets;
      }
      for (int32_t i = 0; i < 16; ++i) EXPECT_EQ(indices[static_cast<size_t>(i)], i < 11 ? i : 0);
      for (size_t i = 33; i < targets.size(); ++i) EXPECT_EQ(targets[i], kNoTarget);
      EXPECT_EQ(valid, loading.loader.valid_targets(0, 16));
      EXPECT_EQ(valid, std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; }));
      loading.loader.seek(0);
    }
  }
}

// Of this process.
auto num_threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

TEST(Loader, StartsNoMoreThreadsThanItHasBatchesToPrepare) {
  Numbered set(20);
  const auto before = num_threads();
  Loading loading(set, {.global_batch = 2, .micro_batch = 2, .workers = 1000000, .prefetch = 3});
  see(loading.loader, 2);
  EXPECT_LE(num_threads() - before, 4) << "one more is being read";
}

TEST(Loader, ThrowsAWorkersErrorAtTheMicroBatchItBelongsTo) {
  for (const int64_t workers : {0, 1, 3}) {
    Numbered set(20);
    const LoaderOptions options{.pass = Pass::Once, .global_batch = 2, .micro_batch = 2, .workers = workers};
    set.broken = 5;
    Loading loading(set, options);
    EXPECT_EQ(see(loading.loader, 2).indices, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(see(loading.loader, 2).indices, (std::vector<int32_t>{2, 3}));
    EXPECT_THROW(loading.loader.next(), DataError);
    EXPECT_THROW(loading.loader.next(), DataError);
    EXPECT_EQ(loading.loader.position(), 4);
    set.broken = -1;
    loading.loader.seek(4);
    EXPECT_EQ(see(loading.loader, 2).indices, (std::vector<int32_t>{4, 5}));
  }
}

TEST(Loader, MakesNoMoreThanThePrefetchAhead) {
  const Numbered set(1000);
  {
    Loading loading(set, {.global_batch = 1, .micro_batch = 1, .workers = 2, .prefetch = 3});
    see_many(loading.loader, 1, 5);
  }
  EXPECT_LE(set.num_filled, 5 + 3);
}

TEST(Loader, KeepsADeliveredMicroBatchUntilTheNextCall) {
  const Numbered set(1000);
  Loading loading(set,
                  {.pass = Pass::Once, .global_batch = 1, .micro_batch = 1, .workers = 3, .prefetch = 1});
  for (int32_t i = 0; i < 200; ++i) {
    const MicroBatch batch = loading.loader.next();
    std::this_thread::yield();
    EXPECT_EQ(batch.tokens[0], i);
    EXPECT_EQ(batch.tokens[2], i + 2);
  }
}

TEST(Loader, StopsCleanlyWhileWorkersAreAhead) {
  const Numbered set(1000);
  const auto before = num_threads();
  for (int i = 0; i < 50; ++i) {
    Loading loading(set, {.global_batch = 2, .micro_batch = 2, .workers = 3, .prefetch = 5});
    if (i % 2 == 0) loading.loader.next();
    if (i % 3 == 0) loading.loader.seek(i);
  }
  EXPECT_EQ(num_threads(), before) << "a worker has outlived its loader";
}

TEST(Loader, DeliversImages) {
  const Shapes set(16, Split::Train, 1);
  Loading loading(set, {.global_batch = 4, .micro_batch = 4, .workers = 2});
  const Sampler sampler(set.num_samples(), true, 1);
  const MicroBatch batch = loading.loader.next();
  ASSERT_NE(batch.images, nullptr);
  EXPECT_EQ(batch.tokens, nullptr);
  std::vector<float> image(static_cast<size_t>(set.spec().input_elems()));
  for (int64_t row = 0; row < 4; ++row) {
    int32_t label = -1;
    set.fill(sampler.index(row), {.image = image.data(), .targets = &label});
    EXPECT_EQ(batch.targets[row], label);
    EXPECT_TRUE(std::equal(image.begin(), image.end(), batch.images + row * set.spec().input_elems()));
  }
  EXPECT_EQ(batch.num_valid_targets, 4);
}

TEST(Loader, WantsExactlyTheMemoryItAnnounces) {
  const SampleSpec spec{.kind = SampleKind::Tokens, .context = 256, .num_classes = 256};
  EXPECT_EQ(loader_bytes(spec, {.micro_batch = 8}), 2 * 8 * 256 * 4);
  EXPECT_EQ(loader_bytes(spec, {.micro_batch = 8, .workers = 2, .prefetch = 4}), 5 * 2 * 8 * 256 * 4);
  const Numbered set(10);
  const LoaderOptions options{.global_batch = 2, .micro_batch = 2, .workers = 1};
  const Arena arena(loader_bytes(set.spec(), options));
  EXPECT_THROW(Loader(set, options, {arena.data, arena.size - 64}), BugError);
}

// A ramp of 4, 4, 8, 8, 8, then 16: every sample once, in the order of one rank, on any number of ranks and
// from any batch on.
TEST(Loader, TakesSmallerBatchesFirst) {
  const Numbered data(1000);
  LoaderOptions options{.global_batch = 16, .ramp = {{2, 4}, {5, 8}}, .micro_batch = 2};
  const std::vector<int64_t> sizes = {4, 4, 8, 8, 8, 16, 16};
  Sampler order(data.parts(), true, options.seed);
  for (const int64_t ranks : {1, 2}) {
    for (size_t from = 0; from < sizes.size(); ++from) {
      int64_t position = 0;
      for (size_t i = 0; i < from; ++i) position += sizes[i];
      std::vector<std::unique_ptr<Loading>> all;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        LoaderOptions own = options;
        own.rank = rank;
        own.world_size = ranks;
        own.workers = 2;
        all.push_back(std::make_unique<Loading>(data, own));
        all.back()->loader.seek(position, std::nullopt, static_cast<int64_t>(from));
      }
      for (size_t i = from; i < sizes.size(); ++i) {
        std::vector<int32_t> expected, found;
        for (int64_t s = 0; s < sizes[i]; ++s)
          expected.push_back(static_cast<int32_t>(order.index(position + s)));
        for (auto& rank : all) {
          ASSERT_EQ(rank->loader.position(), position);
          ASSERT_EQ(rank->loader.batch_size(), sizes[i]);
          for (int64_t m = 0; m < rank->loader.micro_batches_in(sizes[i]); ++m) {
            for (const int32_t index : see(rank->loader, 2).indices) found.push_back(index);
          }
        }
        ASSERT_EQ(found, expected) << "batch " << i << " from " << from << " on " << ranks;
        position += sizes[i];
      }
    }
  }
}

}  // namespace
}  // namespace tandem
