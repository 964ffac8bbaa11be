#include "tandem/data/images/image_view.h"

#include <algorithm>

#include "tandem/data/images/augment.h"
#include "tandem/data/images/decode.h"
#include "tandem/data/images/resize.h"

namespace tandem {

void view_image(const StoredImage& image, const std::string& name, const ViewOptions& options, float* dst) {
  const ImageSize whole = size_of(image, name);
  Box box = options.draw != nullptr && options.crop > 0 ? random_box(whole, options.crop, *options.draw)
                                                        : middle_square(whole);
  // As much smaller as leaves a pixel for each that is wanted.
  int64_t reduce = 8;
  const double least = std::min(box.height, box.width);
  while (reduce > 1 && least / static_cast<double>(reduce) < static_cast<double>(options.side)) reduce /= 2;
  const Picture picture = decode(image, name, options.channels, reduce);
  const double down = static_cast<double>(picture.height) / static_cast<double>(whole.height);
  const double along = static_cast<double>(picture.width) / static_cast<double>(whole.width);
  box = {box.top * down, box.left * along, box.height * down, box.width * along};
  resize(picture.pixels.data(), {picture.height, picture.width}, options.channels, box, options.side, dst);
}

}  // namespace tandem
