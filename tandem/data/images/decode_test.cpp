#include "tandem/data/images/decode.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/data/images/encoded_test.h"
#include "tandem/data/images/resize.h"

namespace tandem {
namespace {

int64_t largest_difference(const Picture& a, const Picture& b) {
  EXPECT_EQ(a.pixels.size(), b.pixels.size());
  int64_t most = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i)
    most = std::max<int64_t>(most, std::abs(int64_t{a.pixels[i]} - b.pixels[i]));
  return most;
}

TEST(Decode, GivesThePixelsOfPngAndJpeg) {
  const Picture picture = smooth_picture(33, 50);
  EXPECT_EQ(largest_difference(decode(stored(png_of(picture)), "a.png", 3), picture), 0);
  EXPECT_LE(largest_difference(decode(stored(jpeg_of(picture)), "a.jpg", 3), picture), 6);
  const ImageSize size = size_of(stored(jpeg_of(picture)), "a.jpg");
  EXPECT_EQ(size.height, 33);
  EXPECT_EQ(size.width, 50);
  EXPECT_EQ(decode(stored(png_of(picture)), "a.png", 1).pixels.size(), 33u * 50u);
  EXPECT_EQ(decode(stored(jpeg_of(picture)), "a.jpg", 1).pixels.size(), 33u * 50u);
}

TEST(Decode, MakesJpegsSmallerOnTheWay) {
  const Picture half = decode(stored(jpeg_of(smooth_picture(64, 32))), "a.jpg", 3, 2);
  EXPECT_EQ(half.height, 32);
  EXPECT_EQ(half.width, 16);
  EXPECT_LE(largest_difference(half, smooth_picture(32, 16)), 12);
}

TEST(Decode, NamesWhatIsBroken) {
  const std::string jpeg = jpeg_of(smooth_picture(64, 64)), png = png_of(smooth_picture(64, 64));
  const auto message = [](const std::string& text) {
    return message_of<DataError>([&] { decode(stored(text), "photos/cat/1.jpg", 3); });
  };
  for (const std::string& text : {jpeg.substr(0, jpeg.size() / 2), jpeg.substr(0, 10),
                                  png.substr(0, png.size() / 2), std::string("text"), std::string()}) {
    EXPECT_EQ(message(text).find("photos/cat/1.jpg: broken image: "), 0u) << message(text);
  }
  EXPECT_NE(message("").find("the file is empty"), std::string::npos);
  EXPECT_NE(message("hello").find("neither JPEG nor PNG"), std::string::npos);
}

TEST(Resize, KeepsAnImageOfTheSameSize) {
  const Picture picture = smooth_picture(16, 16);
  std::vector<float> out(picture.pixels.size());
  resize(picture.pixels.data(), {16, 16}, 3, {0, 0, 16, 16}, 16, out.data());
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], static_cast<float>(picture.pixels[i]));
}

// A fine pattern becomes grey: with neighbours alone it would become all black or all white.
TEST(Resize, SeesEveryPixelWhereItMakesAnImageSmaller) {
  std::vector<uint8_t> stripes(64 * 64);
  for (size_t i = 0; i < stripes.size(); ++i) stripes[i] = i % 2 == 0 ? 0 : 255;
  std::vector<float> out(8 * 8);
  resize(stripes.data(), {64, 64}, 1, {0, 0, 64, 64}, 8, out.data());
  // 16 columns count for a pixel, as many black as white; at the edges 12, of which the outer 4 are not
  // there: weights of 3.375 / 7 and 3.625 / 7 are left for white.
  for (size_t i = 0; i < out.size(); ++i) {
    const double expected = i % 8 == 0 ? 255 * 3.375 / 7 : i % 8 == 7 ? 255 * 3.625 / 7 : 127.5;
    EXPECT_NEAR(out[i], expected, 1e-3) << i;
  }
}

TEST(Resize, TakesAPart) {
  const Picture picture = smooth_picture(100, 100);
  std::vector<float> out(10 * 10 * 3);
  resize(picture.pixels.data(), {100, 100}, 3, {50, 20, 40, 40}, 10, out.data());
  EXPECT_NEAR(out[0], 22 * 2.55, 2);  // the middle of the first pixel is at column 22, row 52
  EXPECT_NEAR(out[1], 52 * 2.55, 2);
  EXPECT_NEAR(out[99 * 3], 58 * 2.55, 2);
}

}  // namespace
}  // namespace tandem
