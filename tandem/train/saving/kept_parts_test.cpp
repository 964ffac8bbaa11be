#include "tandem/train/saving/kept_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/train/saving/memory_copies.h"

namespace tandem {
namespace {

class AFile : public ::testing::Test {
 protected:
  AFile() : layout_({{3, 10, 5000}, {0, 7, 100}}), file_(static_cast<size_t>(layout_.bytes())) {
    layout_.begin(file_);
    std::ranges::fill(layout_.text(file_, 0), std::byte{'a'});
    std::ranges::fill(layout_.text(file_, 1), std::byte{'b'});
    std::ranges::fill(layout_.data(file_, 0), std::byte{1});
    std::ranges::fill(layout_.data(file_, 1), std::byte{2});
  }
  const KeptLayout layout_;
  std::vector<std::byte> file_;
};

TEST_F(AFile, HoldsItsPartsOnceItIsCommitted) {
  EXPECT_TRUE(read_kept(file_).parts.empty());
  layout_.commit(file_, {2, 40, 4}, "about it");
  const KeptParts kept = read_kept(file_);
  EXPECT_EQ((KeptMoment{2, 40, 4}), kept.moment);
  EXPECT_EQ("about it", kept.meta);
  ASSERT_EQ(2U, kept.parts.size());
  EXPECT_EQ(3, kept.parts[0].rank);
  EXPECT_EQ(std::string(10, 'a'), kept.parts[0].text);
  EXPECT_EQ(5000U, kept.parts[0].data.size());
  EXPECT_EQ(std::byte{2}, kept.parts[1].data[99]);
  layout_.begin(file_);
  EXPECT_TRUE(read_kept(file_).parts.empty());
}

TEST_F(AFile, IsNotBelievedWhereItPointsOutOfItself) {
  layout_.commit(file_, {0, 40, 4}, "");
  EXPECT_TRUE(read_kept(std::span(file_).first(20)).parts.empty());
  EXPECT_TRUE(read_kept(std::span(file_).first(file_.size() - 4096)).parts.empty());
  for (size_t i = 0; i < 6 * 8 + 10 * 8; i += 8) {  // header and entries
    std::vector<std::byte> damaged = file_;
    const int64_t value = int64_t{1} << 62;
    std::memcpy(damaged.data() + i, &value, sizeof value);
    const KeptParts kept = read_kept(damaged);
    for (const KeptPart& part : kept.parts) EXPECT_LE(part.data.size() + part.text.size(), file_.size()) << i;
  }
}

TEST_F(AFile, HasRoomForSoMuchAndNoMore) {
  layout_.commit(file_, {0, 1, 4}, std::string(KeptLayout::kMetaRoom, 'x'));
  EXPECT_EQ(std::byte{'a'}, layout_.text(file_, 0)[0]);
  EXPECT_THROW(layout_.commit(file_, {0, 1, 4}, std::string(KeptLayout::kMetaRoom + 1, 'x')), TrainError);
}

TEST(KeptRanks, AreOfTheNodeBefore) {
  EXPECT_EQ((std::vector<int>{1}), kept_ranks(1, 4, 4));  // there is no other node
  EXPECT_EQ((std::vector<int>{1, 3}), kept_ranks(1, 4, 2));
  EXPECT_EQ((std::vector<int>{2, 0}), kept_ranks(2, 4, 2));
  EXPECT_EQ((std::vector<int>{0, 4}), kept_ranks(0, 6, 2));
  // Three ranks and one: all of the three are kept by the one.
  EXPECT_EQ((std::vector<int>{3, 0, 1, 2}), kept_ranks(3, {0, 0, 0, 1}));
  EXPECT_EQ((std::vector<int>{0, 3}), kept_ranks(0, {0, 0, 0, 1}));
}

}  // namespace
}  // namespace tandem
