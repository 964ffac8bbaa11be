// JPEG and PNG files to pixels. What cannot be read throws a DataError that begins with the image's name.
#pragma once

#include <functional>
#include <string>

#include "tandem/data/images/picture.h"

namespace tandem {

// At least the part of an image that `choose` wants when it is told the image's size. `channels` is 1 (grey)
// or 3 (RGB, with a lane that counts for nothing behind each pixel where that is faster: the picture says 4);
// what is transparent is seen on black. A JPEG that is cut off is an error, as any other that is. The memory
// of `part` is used again.
void decode_part(const StoredImage& image, const std::string& name, int64_t channels,
                 const std::function<WantedPart(const ImageSize& size)>& choose, PicturePart& part);

}  // namespace tandem
