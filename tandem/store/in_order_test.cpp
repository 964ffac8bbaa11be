#include "tandem/store/in_order.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "tandem/base/message_of_test.h"

namespace tandem {
namespace {

// An object of bytes that follow from their place; it counts its readers and fails where it is told to.
class Numbers final : public ObjectReader {
 public:
  Numbers(int64_t bytes, bool far) : bytes_(bytes), far_(far) {}
  static std::byte at(int64_t offset) { return static_cast<std::byte>(offset * offset >> 9); }
  int64_t size() const override { return bytes_; }
  bool is_far() const override { return far_; }
  std::string description() const override { return "numbers"; }
  void read_at(int64_t offset, std::span<std::byte> dst) const override {
    ++reads;
    if (fails_at >= offset && fails_at < offset + static_cast<int64_t>(dst.size()))
      throw IoError("numbers: cannot read byte {}", fails_at);
    for (size_t i = 0; i < dst.size(); ++i) dst[i] = at(offset + static_cast<int64_t>(i));
  }
  int64_t fails_at = -1;
  mutable std::atomic<int> reads{0};

 private:
  int64_t bytes_;
  bool far_;
};

// Reads all that is left, so much at a time; false at the first byte that is another.
bool reads_the_rest(InOrder& in_order, int64_t bytes, size_t most) {
  while (in_order.at() < bytes) {
    const int64_t begin = in_order.at();
    const auto piece = in_order.next(std::min(most, static_cast<size_t>(bytes - begin)));
    if (piece.empty() || piece.size() > most || in_order.at() != begin + static_cast<int64_t>(piece.size()))
      return false;
    for (size_t i = 0; i < piece.size(); i += 251) {
      if (piece[i] != Numbers::at(begin + static_cast<int64_t>(i))) return false;
    }
  }
  return true;
}

TEST(InOrder, GivesAllBytesOfWhatIsNearAndOfWhatIsFar) {
  for (const bool far : {false, true}) {
    for (const int64_t bytes : {int64_t{0}, int64_t{1}, InOrder::kFarPiece - 1, InOrder::kFarPiece,
                                11 * InOrder::kFarPiece + 12345}) {
      const Numbers object(bytes, far);
      InOrder in_order(object);
      EXPECT_TRUE(reads_the_rest(in_order, bytes, 300'007)) << bytes << " " << far;
    }
  }
}

TEST(InOrder, WhatIsFarIsReadInPiecesOfSomeLengthHoweverLittleIsAskedFor) {
  const Numbers object(3 * InOrder::kFarPiece, true);
  InOrder in_order(object);
  EXPECT_TRUE(reads_the_rest(in_order, object.size(), 5000));
  EXPECT_EQ(object.reads, 3);
}

TEST(InOrder, ReadsNoFurtherAheadThanItHasRoom) {
  const Numbers object(40 * InOrder::kFarPiece, true);
  {
    InOrder in_order(object);
    in_order.next(1);
  }  // and ends while reads are under way
  EXPECT_LE(object.reads, kStoreStreams + 1);
}

TEST(InOrder, ThrowsWhereTheBytesAreThatCannotBeRead) {
  Numbers object(12 * InOrder::kFarPiece, true);
  object.fails_at = 2 * InOrder::kFarPiece + 7;
  InOrder in_order(object);
  EXPECT_TRUE(reads_the_rest(in_order, 2 * InOrder::kFarPiece, 1 << 20));
  EXPECT_EQ(message_of<IoError>([&] { in_order.next(1); }),
            "numbers: cannot read byte " + std::to_string(object.fails_at));
}

}  // namespace
}  // namespace tandem
