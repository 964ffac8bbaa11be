// What a model sees of an image.
#pragma once

#include <string>

#include "tandem/base/rng.h"
#include "tandem/data/images/picture.h"

namespace tandem {

struct ViewOptions {
  int64_t side = 32, channels = 3;
  double crop = 0;            // smallest share of the area that is cut out at random; 0 = the middle square
  RngCursor* draw = nullptr;  // where there is none: the middle square
};

// dst[side, side, channels], values 0 to 255. Throws DataError that begins with `name`.
void view_image(const StoredImage& image, const std::string& name, const ViewOptions& options, float* dst);

}  // namespace tandem
