#include "tandem/checkpoint/running_digest.h"

#include <gtest/gtest.h>

#include "tandem/base/digest.h"

namespace tandem {
namespace {

TEST(RunningDigest, EachBlockHasTheDigestOfItsBytes) {
  constexpr auto kBlock = static_cast<size_t>(kDigestBlock);
  std::vector<std::byte> bytes(2 * kBlock + 5);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 7);
  for (const size_t size : {size_t{0}, size_t{3}, kBlock, kBlock + 1, 2 * kBlock, 2 * kBlock + 5}) {
    const auto src = std::span<const std::byte>(bytes).first(size);
    std::vector<std::byte> copy(size);
    const BlockDigests digests = digest_and_copy(src, copy, true);
    EXPECT_TRUE(std::equal(src.begin(), src.end(), copy.begin()));
    EXPECT_EQ(digests.whole, digest_hex(src));
    ASSERT_EQ(digests.blocks.size(), std::max<size_t>(1, (size + kBlock - 1) / kBlock));
    for (size_t i = 0; i < digests.blocks.size(); ++i) {
      EXPECT_EQ(digests.blocks[i], digest_hex(src.subspan(i * kBlock, std::min(kBlock, size - i * kBlock))));
    }
  }
}

}  // namespace
}  // namespace tandem
