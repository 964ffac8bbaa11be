#include "tandem/data/images/image_view.h"

#include <algorithm>

#include "tandem/data/images/augment.h"
#include "tandem/data/images/decode.h"

namespace tandem {
namespace {

// A pixel at the edge of a box that becomes smaller sees half a pixel's width beyond it.
PixelBox with_reach(const PixelBox& box, int64_t side, const ImageSize& whole) {
  const double down = box.height / static_cast<double>(2 * side);
  const double along = box.width / static_cast<double>(2 * side);
  const double top = std::max(0.0, box.top - down), left = std::max(0.0, box.left - along);
  const double bottom = std::min(static_cast<double>(whole.height), box.top + box.height + down);
  const double right = std::min(static_cast<double>(whole.width), box.left + box.width + along);
  return {top, left, bottom - top, right - left};
}

// As much smaller as leaves a pixel for each that is wanted.
int64_t reduction(const PixelBox& box, int64_t side) {
  int64_t reduce = 8;
  const double least = std::min(box.height, box.width);
  while (reduce > 1 && least / static_cast<double>(reduce) < static_cast<double>(side)) reduce /= 2;
  return reduce;
}

}  // namespace

void view_image(const StoredImage& image, const std::string& name, ViewOptions options, float* dst) {
  thread_local PicturePart part;  // its memory is used again
  PixelBox box;
  ImageSize whole;
  const auto choose = [&](const ImageSize& size) {
    whole = size;
    box = options.draw != nullptr && options.crop > 0 ? random_box(size, options.crop, *options.draw)
                                                      : middle_square(size);
    return WantedPart{with_reach(box, options.side, size), reduction(box, options.side), options.thorough};
  };
  decode_part(image, name, options.channels, choose, part);
  if (options.flip && options.draw != nullptr) options.finish.flip = options.draw->below(2) == 1;
  const double down = static_cast<double>(part.whole.height) / static_cast<double>(whole.height);
  const double along = static_cast<double>(part.whole.width) / static_cast<double>(whole.width);
  box = {box.top * down - static_cast<double>(part.top), box.left * along - static_cast<double>(part.left),
         box.height * down, box.width * along};
  const Picture& picture = part.picture;
  resize(picture.pixels.data(), {picture.height, picture.width}, picture.channels, box, options.side,
         options.finish, dst);
}

}  // namespace tandem
