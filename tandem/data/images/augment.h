// Random changes of training images. All that is drawn is a function of a key (the seed and the number of the
// sample in the order of training), so that neither threads, nor ranks, nor a resume change a pixel.
#pragma once

#include <cstdint>

#include "tandem/base/rng.h"
#include "tandem/data/images/picture.h"

namespace tandem {

// The keys data.flip, data.pad, data.crop and data.color.
struct Augmentation {
  bool flip = false;
  int64_t pad = 0;
  double crop = 0;
  double color = 0;
  bool any() const { return flip || pad > 0 || crop > 0 || color > 0; }
};

// A part with a share of the area between `least` and 1 and sides of 3:4 to 4:3, anywhere in the image.
PixelBox random_box(const ImageSize& size, double least, RngCursor& draw);

// In place, image[side, side, channels]: shifts by up to `pad` pixels over black, turns from left to right,
// changes colours. `white` is the value of white; what colours would exceed is cut off.
void augment(const Augmentation& how, int64_t side, int64_t channels, float black, float white,
             RngCursor& draw, float* image);

}  // namespace tandem
