// Images for tests: a smooth picture, as a JPEG, as a PNG and as a folder of them.
#pragma once

#include <gtest/gtest.h>
#include <png.h>
#include <turbojpeg.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tandem/data/images/picture.h"

namespace tandem {

// Red grows to the right, green downwards; blue is the same everywhere.
inline Picture smooth_picture(int64_t height, int64_t width, uint8_t blue = 40) {
  Picture picture{height, width, 3, {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      picture.pixels.push_back(static_cast<uint8_t>(x * 255 / width));
      picture.pixels.push_back(static_cast<uint8_t>(y * 255 / height));
      picture.pixels.push_back(blue);
    }
  }
  return picture;
}

inline Picture noisy_picture(int64_t height, int64_t width) {
  Picture picture = smooth_picture(height, width);
  for (size_t i = 0; i < picture.pixels.size(); ++i)
    picture.pixels[i] = static_cast<uint8_t>(picture.pixels[i] / 2 + i * 2654435761u % 97);
  return picture;
}

// `sampled`: colours at half the size, as cameras do.
inline std::string jpeg_of(const Picture& picture, bool sampled = false) {
  const tjhandle encoder = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  EXPECT_EQ(tjCompress2(encoder, picture.pixels.data(), static_cast<int>(picture.width), 0,
                        static_cast<int>(picture.height), TJPF_RGB, &bytes, &size,
                        sampled ? TJSAMP_420 : TJSAMP_444, 95, 0),
            0);
  std::string text(reinterpret_cast<const char*>(bytes), size);
  tjFree(bytes);
  tjDestroy(encoder);
  return text;
}

inline std::string png_of(const Picture& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = picture.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  EXPECT_NE(png_image_write_to_memory(&image, nullptr, &size, 0, picture.pixels.data(), 0, nullptr), 0);
  std::string text(size, 0);
  EXPECT_NE(png_image_write_to_memory(&image, text.data(), &size, 0, picture.pixels.data(), 0, nullptr), 0);
  text.resize(size);
  return text;
}

inline StoredImage stored(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {.bytes = {begin, begin + text.size()}};
}

inline void write_image(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

// Three classes, their pictures told apart by blue; every other one is a PNG.
inline void write_classes(const std::filesystem::path& folder, int per_class) {
  const char* const names[] = {"cat", "dog", "owl"};
  for (int label = 0; label < 3; ++label) {
    for (int i = 0; i < per_class; ++i) {
      const Picture picture = smooth_picture(40 + i, 60, static_cast<uint8_t>(20 + 100 * label));
      const std::string name = std::to_string(i) + (i % 2 == 0 ? ".jpg" : ".png");
      write_image(folder / names[label] / name, i % 2 == 0 ? jpeg_of(picture) : png_of(picture));
    }
  }
}

}  // namespace tandem
