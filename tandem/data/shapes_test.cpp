#include "tandem/data/shapes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tandem {
namespace {

struct Image {
  std::vector<float> pixels;
  int32_t label = -7;
};

Image image_of(const Shapes& shapes, int64_t index) {
  Image image{std::vector<float>(static_cast<size_t>(shapes.spec().input_elems()), NAN)};
  shapes.fill(index, {.image = image.pixels.data(), .targets = &image.label});
  return image;
}

TEST(Shapes, FlipsOneLabelInTenToEveryOtherClass) {
  const Shapes shapes(16, Split::Train, 1);
  constexpr int64_t kSamples = 20000;
  int64_t flipped = 0;
  std::vector<int64_t> moved(Shapes::kNumClasses, 0), classes(Shapes::kNumClasses, 0);
  for (int64_t i = 0; i < kSamples; ++i) {
    const Image image = image_of(shapes, i);
    const int64_t truth = shapes.true_class(i);
    ASSERT_GE(image.label, 0);
    ASSERT_LT(image.label, Shapes::kNumClasses);
    ++classes[static_cast<size_t>(truth)];
    if (image.label != truth) {
      ++flipped;
      ++moved[static_cast<size_t>((image.label - truth + Shapes::kNumClasses) % Shapes::kNumClasses)];
    }
  }
  EXPECT_NEAR(static_cast<double>(flipped), 0.1 * kSamples, 5.0 * std::sqrt(0.09 * kSamples));
  for (size_t c = 0; c < classes.size(); ++c)
    EXPECT_NEAR(static_cast<double>(classes[c]), 2000.0, 5.0 * std::sqrt(1800.0));
  for (size_t d = 1; d < moved.size(); ++d)
    EXPECT_NEAR(static_cast<double>(moved[d]), 2000.0 / 9, 5.0 * std::sqrt(220.0));
}

TEST(Shapes, FloorIsTheEntropyOfTheLabelAndAccuracyIsCapped) {
  const Shapes shapes(32, Split::Eval, 1);
  double expected = -0.9 * std::log(0.9);
  for (int i = 0; i < 9; ++i) expected -= (0.1 / 9) * std::log(0.1 / 9);
  EXPECT_NEAR(*shapes.loss_floor(), expected, 1e-12);
  EXPECT_NEAR(*shapes.best_accuracy(), 0.9, 1e-12);
}

TEST(Shapes, FillsEveryPixelWithANormalisedValue) {
  const Shapes shapes(32, Split::Train, 9);
  double sum = 0.0, sum_of_squares = 0.0, count = 0.0;
  for (int64_t i = 0; i < 300; ++i) {
    for (const float pixel : image_of(shapes, i).pixels) {
      ASSERT_GE(pixel, -2.0f);  // fails on NaN too
      ASSERT_LE(pixel, 2.0f);
      sum += pixel;
      sum_of_squares += pixel * pixel;
      ++count;
    }
  }
  EXPECT_NEAR(sum / count, 0.0, 0.15);
  EXPECT_NEAR(sum_of_squares / count, 1.5, 0.5);
}

TEST(Shapes, ArePureFunctionsOfSeedSplitAndIndex) {
  const Shapes a(20, Split::Train, 1), again(20, Split::Train, 1), other(20, Split::Eval, 1);
  EXPECT_EQ(image_of(a, 5).pixels, image_of(again, 5).pixels);
  EXPECT_NE(image_of(a, 5).pixels, image_of(a, 6).pixels);
  EXPECT_NE(image_of(a, 5).pixels, image_of(other, 5).pixels);
}

// Which cells of a 7 x 7 grid over the shape's bounding box are ink. The ground is what the border shows.
std::vector<bool> silhouette(const std::vector<float>& pixels, int size) {
  const auto bright = [&](int x, int y) {
    const float* pixel = pixels.data() + 3 * (y * size + x);
    return pixel[0] + pixel[1] + pixel[2] > 0.0f;
  };
  int bright_border = 0;
  for (int i = 0; i < size; ++i)
    bright_border += bright(i, 0) + bright(i, size - 1) + bright(0, i) + bright(size - 1, i);
  const bool ink_is_bright = bright_border < 2 * size;
  int left = size, right = 0, top = size, bottom = 0;
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) {
      if (bright(x, y) != ink_is_bright) continue;
      left = std::min(left, x), right = std::max(right, x), top = std::min(top, y),
      bottom = std::max(bottom, y);
    }
  }
  constexpr int kGrid = 7;
  std::vector<bool> cells;
  for (int row = 0; row < kGrid; ++row) {
    for (int column = 0; column < kGrid; ++column) {
      const int x = left + (right - left) * column / (kGrid - 1),
                y = top + (bottom - top) * row / (kGrid - 1);
      cells.push_back(bright(x, y) == ink_is_bright);
    }
  }
  return cells;
}

// The floor is exact only because the picture gives the shape away: even the nearest of a few hundred known
// silhouettes does.
TEST(Shapes, AreRecognisableDespiteTheNoise) {
  const Shapes shapes(32, Split::Train, 2);
  constexpr int64_t kKnown = 1000, kAsked = 300;
  std::vector<std::vector<bool>> known;
  for (int64_t i = 0; i < kKnown; ++i) known.push_back(silhouette(image_of(shapes, i).pixels, 32));
  int64_t right = 0;
  for (int64_t i = kKnown; i < kKnown + kAsked; ++i) {
    const auto asked = silhouette(image_of(shapes, i).pixels, 32);
    int64_t nearest = 0, fewest = 1000;
    for (int64_t j = 0; j < kKnown; ++j) {
      int64_t differences = 0;
      for (size_t k = 0; k < asked.size(); ++k) differences += asked[k] != known[static_cast<size_t>(j)][k];
      if (differences < fewest) fewest = differences, nearest = j;
    }
    right += shapes.true_class(nearest) == shapes.true_class(i);
  }
  EXPECT_GE(right, kAsked * 97 / 100);
}

}  // namespace
}  // namespace tandem
