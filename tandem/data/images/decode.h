// JPEG and PNG files to pixels. What cannot be read throws a DataError that begins with the image's name.
#pragma once

#include <string>

#include "tandem/data/images/picture.h"

namespace tandem {

// From the header alone.
ImageSize size_of(const StoredImage& image, const std::string& name);

// `channels` is 1 (grey) or 3 (RGB); what is transparent is seen on black. `reduce` is 1, 2, 4 or 8: a JPEG
// may come out that many times smaller, which is much less work than to decode all of it and shrink it then.
// A JPEG that is cut off is an error, as any other that is.
Picture decode(const StoredImage& image, const std::string& name, int64_t channels, int64_t reduce = 1);

}  // namespace tandem
