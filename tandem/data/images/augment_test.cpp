#include "tandem/data/images/augment.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

namespace tandem {
namespace {

std::vector<float> counted(int64_t side, int64_t channels) {
  std::vector<float> image(static_cast<size_t>(side * side * channels));
  std::iota(image.begin(), image.end(), 1.0f);
  return image;
}

std::vector<float> changed(const Augmentation& how, uint64_t sample, int64_t side = 4, int64_t channels = 1) {
  std::vector<float> image = counted(side, channels);
  RngCursor draw(7, sample);
  augment(how, side, channels, 0, 255, draw, image.data());
  return image;
}

TEST(Augment, TurnsHalfOfTheImages) {
  int turned = 0;
  for (uint64_t sample = 0; sample < 200; ++sample) {
    const std::vector<float> image = changed({.flip = true}, sample);
    if (image == counted(4, 1)) continue;
    ++turned;
    EXPECT_EQ((std::vector<float>(image.begin(), image.begin() + 4)), (std::vector<float>{4, 3, 2, 1}));
  }
  EXPECT_GT(turned, 70);
  EXPECT_LT(turned, 130);
}

TEST(Augment, ShiftsByUpToThePadding) {
  std::set<std::vector<float>> seen;
  for (uint64_t sample = 0; sample < 500; ++sample) {
    const std::vector<float> image = changed({.pad = 1}, sample);
    seen.insert(image);
    for (size_t i = 0; i < image.size(); ++i) {  // black, or one from a place nearby
      const auto from = static_cast<int64_t>(image[i]) - 1, to = static_cast<int64_t>(i);
      EXPECT_TRUE(image[i] == 0 || (std::abs(from / 4 - to / 4) <= 1 && std::abs(from % 4 - to % 4) <= 1));
    }
  }
  EXPECT_EQ(seen.size(), 9u);
}

TEST(Augment, PaddingBeyondTheImageLeavesBlack) {
  for (uint64_t sample = 0; sample < 50; ++sample) changed({.pad = 40}, sample);
}

TEST(Augment, ChangesColoursWithinTheirRange) {
  bool other = false;
  for (uint64_t sample = 0; sample < 50; ++sample) {
    const std::vector<float> image = changed({.color = 0.5}, sample, 4, 3);
    other |= image != counted(4, 3);
    for (const float value : image) EXPECT_TRUE(value >= 0 && value <= 255);
  }
  EXPECT_TRUE(other);
}

TEST(Augment, CutsOutPartsOfTheSizeThatWasAskedFor) {
  const ImageSize size{300, 400};
  for (uint64_t sample = 0; sample < 200; ++sample) {
    RngCursor draw(1, sample);
    const PixelBox box = random_box(size, 0.2, draw);
    EXPECT_GE(box.top, 0);
    EXPECT_GE(box.left, 0);
    EXPECT_LE(box.top + box.height, 300.0001);
    EXPECT_LE(box.left + box.width, 400.0001);
    EXPECT_GE(box.height * box.width, 0.2 * 300 * 400 - 1);
  }
}

TEST(Augment, IsAFunctionOfTheKeyAlone) {
  const Augmentation all{.flip = true, .pad = 2, .color = 0.3};
  EXPECT_EQ(changed(all, 11, 8, 3), changed(all, 11, 8, 3));
  EXPECT_NE(changed(all, 11, 8, 3), changed(all, 12, 8, 3));
}

}  // namespace
}  // namespace tandem
