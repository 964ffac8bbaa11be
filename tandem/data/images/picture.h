// Pixels of an image in memory, and a part of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

struct ImageSize {
  int64_t height = 0, width = 0;
};

// 8 bits a channel, [height, width, channels]. Of 4 channels the last counts for nothing.
struct Picture {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;
};

// In pixels; edges may lie within one.
struct PixelBox {
  double top = 0, left = 0, height = 0, width = 0;
};

// What is wanted of an image.
struct WantedPart {
  PixelBox box;           // in pixels of the image
  int64_t reduce = 1;     // 1, 2, 4 or 8: a JPEG may come out that many times smaller, which is less work
  bool thorough = false;  // whether what is broken elsewhere in the image is an error, too
};

// Of an image that may be reduced: a part of it, and where it lies.
struct PicturePart {
  Picture picture;
  int64_t top = 0, left = 0;
  ImageSize whole;
};

// The largest square in the middle: what evaluation sees.
inline PixelBox middle_square(const ImageSize& size) {
  const auto side = static_cast<double>(size.height < size.width ? size.height : size.width);
  return {(static_cast<double>(size.height) - side) / 2, (static_cast<double>(size.width) - side) / 2, side,
          side};
}

// An image as a set keeps it: the bytes of a JPEG or PNG file, or, where there is a height, pixels.
struct StoredImage {
  std::vector<std::byte> bytes;
  int64_t height = 0, width = 0, channels = 0;
  bool is_encoded() const { return height == 0; }
};

}  // namespace tandem
