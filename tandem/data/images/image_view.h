// What a model sees of an image.
#pragma once

#include <string>

#include "tandem/base/rng.h"
#include "tandem/data/images/picture.h"
#include "tandem/data/images/resize.h"

namespace tandem {

struct ViewOptions {
  int64_t side = 32, channels = 3;
  double crop = 0;            // smallest share of the area that is cut out at random; 0 = the middle square
  bool flip = false;          // whether to turn half of them, drawn behind the part
  RngCursor* draw = nullptr;  // where there is none: the middle square, as it is
  bool thorough = false;      // whether what is broken outside of it is an error, too
  Finish finish = {};         // of values 0 to 255
};

// dst[side, side, channels]. Throws DataError that begins with `name`.
void view_image(const StoredImage& image, const std::string& name, ViewOptions options, float* dst);

}  // namespace tandem
