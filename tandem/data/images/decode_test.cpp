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

PicturePart part_of(const std::string& text, const std::string& name, int64_t channels,
                    const WantedPart& wanted) {
  PicturePart part;
  decode_part(
      stored(text), name, channels, [&](const ImageSize&) { return wanted; }, part);
  return part;
}

// All of it, without a lane that counts for nothing.
Picture decode(const std::string& text, const std::string& name, int64_t channels, int64_t reduce = 1) {
  Picture picture = part_of(text, name, channels, {{0, 0, 1e6, 1e6}, reduce, true}).picture;
  if (picture.channels == 4) {
    size_t kept = 0;
    for (size_t i = 0; i < picture.pixels.size(); ++i)
      if (i % 4 != 3) picture.pixels[kept++] = picture.pixels[i];
    picture.pixels.resize(kept);
    picture.channels = 3;
  }
  return picture;
}

TEST(Decode, GivesThePixelsOfPngAndJpeg) {
  const Picture picture = smooth_picture(33, 50);
  EXPECT_EQ(largest_difference(decode(png_of(picture), "a.png", 3), picture), 0);
  EXPECT_LE(largest_difference(decode(jpeg_of(picture), "a.jpg", 3), picture), 6);
  const ImageSize size = part_of(jpeg_of(picture), "a.jpg", 3, {}).whole;
  EXPECT_EQ(size.height, 33);
  EXPECT_EQ(size.width, 50);
  EXPECT_EQ(decode(png_of(picture), "a.png", 1).pixels.size(), 33u * 50u);
  EXPECT_EQ(decode(jpeg_of(picture), "a.jpg", 1).pixels.size(), 33u * 50u);
}

TEST(Decode, MakesJpegsSmallerOnTheWay) {
  const Picture half = decode(jpeg_of(smooth_picture(64, 32)), "a.jpg", 3, 2);
  EXPECT_EQ(half.height, 32);
  EXPECT_EQ(half.width, 16);
  EXPECT_LE(largest_difference(half, smooth_picture(32, 16)), 12);
}

// Whatever part is asked for, in any reduction: its pixels are those of the whole image.
TEST(Decode, APartOfAJpegIsThatPartOfTheWhole) {
  for (const bool sampled : {false, true}) {
    const std::string jpeg = jpeg_of(noisy_picture(203, 301), sampled);
    for (const int64_t reduce : {1, 2, 4}) {
      const Picture whole = decode(jpeg, "a.jpg", 3, reduce);
      for (const PixelBox& box : {PixelBox{0, 0, 203, 301}, PixelBox{100, 200, 60, 80},
                                  PixelBox{37, 51, 100, 20}, PixelBox{1, 290, 202, 11}}) {
        const PicturePart part = part_of(jpeg, "a.jpg", 3, {box, reduce, false});
        ASSERT_EQ(part.whole.height, whole.height);
        const auto scale = static_cast<double>(reduce);
        for (auto y = static_cast<int64_t>(box.top / scale) + 1;
             y < static_cast<int64_t>((box.top + box.height) / scale); ++y) {
          for (auto x = static_cast<int64_t>(box.left / scale) + 1;
               x < static_cast<int64_t>((box.left + box.width) / scale); ++x) {
            const auto at = static_cast<size_t>(((y - part.top) * part.picture.width + x - part.left) * 4);
            const auto all = static_cast<size_t>((y * whole.width + x) * 3);
            for (size_t c = 0; c < 3; ++c)
              ASSERT_EQ(part.picture.pixels[at + c], whole.pixels[all + c])
                  << y << " " << x << " by " << reduce;
          }
        }
      }
    }
  }
}

// What is cut off is found though nothing of it is wanted; what is broken below a part only if it is looked
// for.
TEST(Decode, AJpegThatIsCutOffIsBrokenWhateverIsWanted) {
  const std::string jpeg = jpeg_of(noisy_picture(200, 200));
  const WantedPart top{{0, 0, 20, 20}, 1, false};
  EXPECT_NO_THROW(part_of(jpeg, "a.jpg", 3, top));
  EXPECT_THROW(part_of(jpeg.substr(0, jpeg.size() * 3 / 4), "a.jpg", 3, top), DataError);
  std::string damaged = jpeg;
  damaged.replace(damaged.size() * 3 / 4, 40, 40, 'x');
  damaged.replace(damaged.size() * 3 / 4, 2, "\xff\xd9");
  EXPECT_NO_THROW(part_of(damaged, "a.jpg", 3, top));
  WantedPart thorough = top;
  thorough.thorough = true;
  EXPECT_THROW(part_of(damaged, "a.jpg", 3, thorough), DataError);
}

TEST(Decode, NamesWhatIsBroken) {
  const std::string jpeg = jpeg_of(smooth_picture(64, 64)), png = png_of(smooth_picture(64, 64));
  const auto message = [](const std::string& text) {
    return message_of<DataError>([&] { decode(text, "photos/cat/1.jpg", 3); });
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
  resize(picture.pixels.data(), {16, 16}, 3, {0, 0, 16, 16}, 16, {}, out.data());
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], static_cast<float>(picture.pixels[i]));
}

// A fine pattern becomes grey: with neighbours alone it would become all black or all white.
TEST(Resize, SeesEveryPixelWhereItMakesAnImageSmaller) {
  std::vector<uint8_t> stripes(64 * 64);
  for (size_t i = 0; i < stripes.size(); ++i) stripes[i] = i % 2 == 0 ? 0 : 255;
  std::vector<float> out(8 * 8);
  resize(stripes.data(), {64, 64}, 1, {0, 0, 64, 64}, 8, {}, out.data());
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
  resize(picture.pixels.data(), {100, 100}, 3, {50, 20, 40, 40}, 10, {}, out.data());
  EXPECT_NEAR(out[0], 22 * 2.55, 2);  // the middle of the first pixel is at column 22, row 52
  EXPECT_NEAR(out[1], 52 * 2.55, 2);
  EXPECT_NEAR(out[99 * 3], 58 * 2.55, 2);
}

// Vectors of any width give what plain sums do, with a lane that does not count or without, and what is done
// on the way out is what would be done after it.
TEST(Resize, FourLanesAFlipAndAScaleAreAsThreeAndThen) {
  const Picture three = noisy_picture(57, 91);
  std::vector<uint8_t> four;
  std::vector<float> floats(three.pixels.begin(), three.pixels.end());
  for (size_t i = 0; i < three.pixels.size(); ++i) {
    four.push_back(three.pixels[i]);
    if (i % 3 == 2) four.push_back(99);
  }
  const Finish finish{.flip = true, .factor = {0.5f, 2, 1}, .shift = {1, -3, 0}};
  for (const int64_t side : {1, 7, 40, 64}) {
    const PixelBox box{3.5, 10.25, 48, 61.5};
    std::vector<float> plain(static_cast<size_t>(side * side * 3)), wide(plain.size()), other(plain.size());
    resize(three.pixels.data(), {57, 91}, 3, box, side, {}, plain.data());
    resize(four.data(), {57, 91}, 4, box, side, finish, wide.data());
    resize(floats.data(), {57, 91}, 3, box, side, {}, other.data());
    for (int64_t y = 0; y < side; ++y) {
      for (int64_t x = 0; x < side; ++x) {
        for (size_t c = 0; c < 3; ++c) {
          const auto at = static_cast<size_t>((y * side + x) * 3) + c;
          const auto mirrored = static_cast<size_t>((y * side + side - 1 - x) * 3) + c;
          EXPECT_NEAR(wide[mirrored], plain[at] * finish.factor[c] + finish.shift[c], 1e-3);
          EXPECT_NEAR(other[at], plain[at], 1e-4);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem
