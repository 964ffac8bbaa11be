// A part of an image as a square of another size: bilinear, and where it becomes smaller every pixel counts
// by the area that it covers, so that nothing flickers away (antialiasing).
#pragma once

#include <cstdint>

#include "tandem/data/images/picture.h"

namespace tandem {

// src[height, width, channels] to dst[side, side, channels], with the values of src.
void resize(const uint8_t* src, const ImageSize& size, int64_t channels, const Box& box, int64_t side,
            float* dst);
void resize(const float* src, const ImageSize& size, int64_t channels, const Box& box, int64_t side,
            float* dst);

}  // namespace tandem
