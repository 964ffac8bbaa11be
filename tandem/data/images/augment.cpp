#include "tandem/data/images/augment.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem {
namespace {

// The same as padding on all sides and cutting out a square at random.
void shift(int64_t down, int64_t right, int64_t side, int64_t channels, float black, float* image) {
  thread_local std::vector<float> copy;
  copy.assign(image, image + side * side * channels);
  std::fill_n(image, side * side * channels, black);
  const int64_t first = std::max<int64_t>(0, right), last = std::min(side, side + right);
  for (int64_t y = std::max<int64_t>(0, down); y < std::min(side, side + down); ++y) {
    if (first >= last) break;
    std::copy_n(copy.data() + ((y - down) * side + first - right) * channels, (last - first) * channels,
                image + (y * side + first) * channels);
  }
}

void turn(int64_t side, int64_t channels, float* image) {
  for (int64_t y = 0; y < side; ++y) {
    float* row = image + y * side * channels;
    for (int64_t x = 0; x < side / 2; ++x)
      std::swap_ranges(row + x * channels, row + (x + 1) * channels, row + (side - 1 - x) * channels);
  }
}

float grey_of(const float* pixel, int64_t channels) {
  return channels == 1 ? pixel[0] : 0.299f * pixel[0] + 0.587f * pixel[1] + 0.114f * pixel[2];
}

struct ColorChange {
  float brightness, contrast, saturation;
};

// Brightness away from black, contrast away from the image's mean grey, saturation away from a pixel's own.
void change_colors(const ColorChange& by, int64_t pixels, int64_t channels, float black, float white,
                   float* image) {
  double sum = 0;
  for (int64_t p = 0; p < pixels; ++p) {
    float* pixel = image + p * channels;
    for (int64_t c = 0; c < channels; ++c)
      pixel[c] = std::min(white, black + (pixel[c] - black) * by.brightness);
    sum += static_cast<double>(grey_of(pixel, channels));
  }
  const auto mean = static_cast<float>(sum / static_cast<double>(pixels));
  for (int64_t p = 0; p < pixels; ++p) {
    float* pixel = image + p * channels;
    for (int64_t c = 0; c < channels; ++c)
      pixel[c] = std::clamp(mean + (pixel[c] - mean) * by.contrast, black, white);
    const float grey = grey_of(pixel, channels);
    for (int64_t c = 0; c < channels; ++c)
      pixel[c] = std::clamp(grey + (pixel[c] - grey) * by.saturation, black, white);
  }
}

}  // namespace

PixelBox random_box(const ImageSize& size, double least, RngCursor& draw) {
  constexpr int kTries = 10;
  const auto height = static_cast<double>(size.height), width = static_cast<double>(size.width);
  for (int i = 0; i < kTries; ++i) {
    const double area = height * width * (least + (1 - least) * static_cast<double>(draw.uniform()));
    const double ratio = std::exp(std::log(4.0 / 3.0) * (2 * static_cast<double>(draw.uniform()) - 1));
    const double w = std::sqrt(area * ratio), h = std::sqrt(area / ratio);
    const auto y = static_cast<double>(draw.uniform()), x = static_cast<double>(draw.uniform());
    if (w <= width && h <= height) return {(height - h) * y, (width - w) * x, h, w};
  }
  return middle_square(size);  // of an image that is long and narrow
}

void augment(const Augmentation& how, int64_t side, int64_t channels, float black, float white,
             RngCursor& draw, float* image) {
  if (how.pad > 0) {
    const auto places = static_cast<uint64_t>(2 * how.pad + 1);
    const int64_t down = static_cast<int64_t>(draw.below(places)) - how.pad;
    const int64_t right = static_cast<int64_t>(draw.below(places)) - how.pad;
    shift(down, right, side, channels, black, image);
  }
  if (how.flip && draw.below(2) == 1) turn(side, channels, image);
  if (how.color > 0) {
    const auto factor = [&] { return 1 + static_cast<float>(how.color) * (2 * draw.uniform() - 1); };
    const float brightness = factor(), contrast = factor(), saturation = factor();
    change_colors({brightness, contrast, saturation}, side * side, channels, black, white, image);
  }
}

}  // namespace tandem
