#include "tandem/checkpoint/running_digest.h"

#include <gtest/gtest.h>

#include "tandem/base/digest.h"

namespace tandem {
namespace {

class BlocksOf : public testing::TestWithParam<int64_t> {};

TEST_P(BlocksOf, SomeBytesHaveTheDigestsOfThose) {
  const auto kBlock = static_cast<size_t>(GetParam());
  std::vector<std::byte> bytes(2 * kBlock + 5);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 7);
  for (const size_t size : {size_t{0}, size_t{3}, kBlock, kBlock + 1, 2 * kBlock, 2 * kBlock + 5}) {
    const auto src = std::span<const std::byte>(bytes).first(size);
    std::vector<std::byte> copy(size);
    const std::vector<std::string> digests = digest_and_copy(src, copy, GetParam());
    EXPECT_TRUE(std::equal(src.begin(), src.end(), copy.begin()));
    ASSERT_EQ(digests.size(), std::max<size_t>(1, (size + kBlock - 1) / kBlock));
    for (size_t i = 0; i < digests.size(); ++i) {
      EXPECT_EQ(digests[i], digest_hex(src.subspan(i * kBlock, std::min(kBlock, size - i * kBlock))));
    }
    BlockDigests uneven(GetParam());  // added in pieces that end anywhere
    for (size_t done = 0; done < size; done += 300'007)
      uneven.add(src.subspan(done, std::min<size_t>(300'007, size - done)));
    EXPECT_EQ(uneven.finish(), digests);
  }
}

INSTANTIATE_TEST_SUITE_P(RunningDigest, BlocksOf, testing::Values(kDigestBlock, kLeastDigestBlock, 12345));

TEST(RunningDigest, BlocksAreShorterInSmallCheckpoints) {
  EXPECT_EQ(digest_block_of(0), kDigestBlock);  // nobody knows
  EXPECT_EQ(digest_block_of(1), kLeastDigestBlock);
  EXPECT_EQ(digest_block_of((int64_t{16} << 20) - 1), kLeastDigestBlock);
  EXPECT_EQ(digest_block_of(int64_t{16} << 20), 2 * kLeastDigestBlock);
  EXPECT_EQ(digest_block_of(int64_t{16} << 30), kDigestBlock);
  EXPECT_EQ(digest_block_of(int64_t{8} << 40), kDigestBlock);
}

TEST(RunningDigest, ThatOfTheWholeIsTheOnlyBlocksOrDependsOnAll) {
  const std::string one[] = {"a"}, two[] = {"a", "b"}, turned[] = {"b", "a"};
  EXPECT_EQ(combine_digests(one), "a");
  EXPECT_NE(combine_digests(two), combine_digests(turned));
}

}  // namespace
}  // namespace tandem
