#include "tandem/kernels/cuda/gemm/gemm_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/file.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem::cuda {
namespace {

class GemmCacheTest : public testing::Test {
 protected:
  const TemporaryDirectory temporary_;
  const std::filesystem::path& directory_ = temporary_.path();
  std::filesystem::path file() const { return directory_ / "new" / "gemm.txt"; }
  const GemmChoice library_{false, {1, 2, 0xfedcba9876543210u, 4, 5, 6, 7, ~uint64_t{0}}},
      separate_{true, {}};
};

TEST_F(GemmCacheTest, ANewProcessFindsWhatAnEarlierOneChose) {
  GemmCache(file()).add("product", library_);
  GemmCache(file()).add("other product", separate_);
  const GemmCache later(file());
  EXPECT_EQ(later.find("product"), library_);
  EXPECT_EQ(later.find("other product"), separate_);
  EXPECT_EQ(later.find("unknown"), std::nullopt);
}

TEST_F(GemmCacheTest, ProcessesThatWriteAtOnceKeepEachOthersChoices) {
  GemmCache one(file()), two(file());
  one.add("of one", library_);
  two.add("of two", separate_);
  one.add("of one again", separate_);
  EXPECT_EQ(one.find("of two"), separate_);
  EXPECT_EQ(GemmCache(file()).find("of one"), library_);
  EXPECT_EQ(GemmCache(file()).find("of two"), separate_);
}

TEST_F(GemmCacheTest, AChoiceDoesNotChangeWithinAProcess) {
  GemmCache one(file()), two(file());
  one.add("product", library_);
  two.add("product", separate_);
  one.add("something else", library_);
  EXPECT_EQ(one.find("product"), library_);
}

TEST_F(GemmCacheTest, LinesThatMakeNoSenseAreIgnored) {
  write_atomically(directory_ / "gemm.txt", "rubbish\n\nshort : 12ab\nno hex : " + std::string(128, 'x') +
                                                "\ngood : separate\nlast : sep");
  const GemmCache cache(directory_ / "gemm.txt");
  for (const char* key : {"rubbish", "short", "no hex", "last"})
    EXPECT_EQ(cache.find(key), std::nullopt) << key;
  EXPECT_EQ(cache.find("good"), separate_);
}

TEST_F(GemmCacheTest, ADirectoryThatCannotBeWrittenIsNoError) {
  write_atomically(directory_ / "file", "");
  GemmCache cache(directory_ / "file" / "gemm.txt"), nowhere{{}};
  for (GemmCache* c : {&cache, &nowhere}) {
    c->add("product", library_);
    EXPECT_EQ(c->find("product"), library_);
  }
}

TEST(GemmCacheFile, IsNamedAfterTheGpuAndTheLibrary) {
  const char* variable = std::getenv("TANDEM_CACHE_DIR");
  const std::string before = variable == nullptr ? "" : variable;
  setenv("TANDEM_CACHE_DIR", "/somewhere", 1);
  const std::filesystem::path file = gemm_cache_file("Example GPU 9", 9, 0, 130100);
  setenv("TANDEM_CACHE_DIR", before.c_str(), 1);  // empty is as good as none
  EXPECT_EQ(file, "/somewhere/gemm-example-gpu-9-sm90-cublaslt-130100.txt");
}

TEST(GemmKey, DiffersWithEveryPropertyThatAnAlgorithmDependsOn) {
  const Gemm plain{2, 3, 4};
  std::vector<Gemm> others(8, plain);
  others[0].m = 5;
  others[1].n = 5;
  others[2].k = 5;
  others[3].trans_a = true;
  others[4].trans_b = true;
  others[5].in = DType::BF16;
  others[6].epilogue = GemmEpilogue::GeluGrad;
  others[7].pitch_a = 8;
  for (const Gemm& other : others) EXPECT_NE(gemm_key(plain, 16), gemm_key(other, 16));
  EXPECT_NE(gemm_key(plain, 16), gemm_key(plain, 8));
}

TEST(GemmKey, IsTheSameForRowsWithoutGaps) {
  Gemm without_gaps{2, 3, 4};
  without_gaps.pitch_a = 4;
  EXPECT_EQ(gemm_key({2, 3, 4}, 16), gemm_key(without_gaps, 16));
}

// A gradient that is added up and one that is overwritten are the same numbers in another plan.
TEST(GemmKey, IsTheSameWhereAProductIsAdded) {
  Gemm added{2, 3, 4};
  added.accumulate = true;
  EXPECT_EQ(gemm_key({2, 3, 4}, 16), gemm_key(added, 16));
}

TEST_F(GemmCacheTest, ThoseWhoChooseInTurnsChooseAlike) {
  std::vector<GemmChoice> chosen(4);
  {
    std::vector<std::jthread> processes;
    for (size_t i = 0; i < chosen.size(); ++i) {
      processes.emplace_back([&, i] {
        GemmCache cache(file());
        const GemmCache::Turn turn(file());
        cache.refresh();
        if (!cache.find("product")) cache.add("product", {false, {i}});
        chosen[i] = *cache.find("product");
      });
    }
  }
  for (const GemmChoice& choice : chosen) EXPECT_EQ(choice, chosen.front());
}

}  // namespace
}  // namespace tandem::cuda
