// A part of an image as a square of another size: bilinear, and where it becomes smaller every pixel counts
// by the area that it covers, so that nothing flickers away (antialiasing).
#pragma once

#include <array>
#include <cstdint>

#include "tandem/data/images/picture.h"

namespace tandem {

// What is done to a pixel on its way out: it costs nothing there.
struct Finish {
  bool flip = false;  // left and right
  std::array<float, 3> factor = {1, 1, 1}, shift = {0, 0, 0};
};

// src[height, width, lanes] to dst[side, side, channels]: `lanes` is 1, 3 or 4, and channels are as many, but
// 3 of 4.
void resize(const uint8_t* src, const ImageSize& size, int64_t lanes, const PixelBox& box, int64_t side,
            const Finish& finish, float* dst);
void resize(const float* src, const ImageSize& size, int64_t lanes, const PixelBox& box, int64_t side,
            const Finish& finish, float* dst);

}  // namespace tandem
