// What is said of an image that cannot be read.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/base/error.h"

namespace tandem {

inline constexpr int64_t kMostPixels = int64_t{1} << 28;

[[noreturn]] inline void refuse_image(const std::string& name, const std::string& why) {
  throw DataError("{}: broken image: {}; remove or replace it, or set data.broken to skip", name, why);
}

inline void check_image_size(const std::string& name, int64_t height, int64_t width) {
  if (height < 1 || width < 1 || height > kMostPixels / width)
    refuse_image(name, fmt::format("{} x {} pixels, expected at most {}", height, width, kMostPixels));
}

}  // namespace tandem
