// CPU time of one image from its JPEG to what a model sees, beside libjpeg-turbo's decoding of the whole
// image alone, in turns: image_bench [HEIGHT WIDTH [SIDE]]. The images are noise on a gradient, 4:2:0,
// quality 90, parts of them and flips drawn as in training.
#include <fmt/format.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "tandem/data/images/augment.h"
#include "tandem/data/images/image_view.h"

namespace {

double cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

tandem::StoredImage noisy_jpeg(int height, int width) {
  std::vector<uint8_t> pixels;
  std::mt19937 noise(1);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        const int value = (x + y * c) * 255 / (width + height * c) + static_cast<int>(noise() % 21) - 10;
        pixels.push_back(static_cast<uint8_t>(std::clamp(value, 0, 255)));
      }
    }
  }
  const tjhandle encoder = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  tjCompress2(encoder, pixels.data(), width, 0, height, TJPF_RGB, &bytes, &size, TJSAMP_420, 90, 0);
  const auto* begin = reinterpret_cast<const std::byte*>(bytes);
  tandem::StoredImage image{.bytes = {begin, begin + size}};
  tjFree(bytes);
  tjDestroy(encoder);
  return image;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int height = argc > 2 ? std::atoi(argv[1]) : 375, width = argc > 2 ? std::atoi(argv[2]) : 500;
  const int side = argc > 3 ? std::atoi(argv[3]) : 224;
  constexpr int kRounds = 15, kImages = 60;
  constexpr double kCrop = 0.08;  // as usual for ImageNet
  const tandem::StoredImage image = noisy_jpeg(height, width);
  std::vector<float> view(static_cast<size_t>(side * side * 3));
  std::vector<uint8_t> whole(static_cast<size_t>(height * width * 3));
  const tjhandle decoder = tjInitDecompress();
  const tandem::Finish finish{.factor = {0.02f, 0.02f, 0.02f}, .shift = {-2, -2, -2}};
  std::vector<double> alone, parts, middles;
  for (int round = 0; round < kRounds; ++round) {
    double start = cpu_s();
    for (int i = 0; i < kImages; ++i) {
      // As much smaller as the same part is decoded.
      tandem::RngCursor draw(7, static_cast<uint64_t>(round * kImages + i));
      const tandem::PixelBox box = tandem::random_box({height, width}, kCrop, draw);
      int reduce = 8;
      while (reduce > 1 && std::min(box.height, box.width) / reduce < side) reduce /= 2;
      const tjscalingfactor factor{1, reduce};
      tjDecompress2(decoder, reinterpret_cast<const unsigned char*>(image.bytes.data()), image.bytes.size(),
                    whole.data(), TJSCALED(width, factor), 0, TJSCALED(height, factor), TJPF_RGB, 0);
    }
    alone.push_back((cpu_s() - start) / kImages);
    start = cpu_s();
    for (int i = 0; i < kImages; ++i) {
      tandem::RngCursor draw(7, static_cast<uint64_t>(round * kImages + i));
      view_image(image, "bench",
                 {.side = side, .channels = 3, .crop = kCrop, .flip = true, .draw = &draw, .finish = finish},
                 view.data());
    }
    parts.push_back((cpu_s() - start) / kImages);
    start = cpu_s();
    for (int i = 0; i < kImages; ++i)
      view_image(image, "bench", {.side = side, .channels = 3, .finish = finish}, view.data());
    middles.push_back((cpu_s() - start) / kImages);
  }
  tjDestroy(decoder);
  const double base = median(alone);
  fmt::print(
      "{} x {} ({} KiB) to {}: library alone {:.3f} ms, part and flip {:.3f} ms ({:.2f} of its speed), "
      "middle "
      "square {:.3f} ms ({:.2f})\n",
      height, width, image.bytes.size() / 1024, side, 1e3 * base, 1e3 * median(parts), base / median(parts),
      1e3 * median(middles), base / median(middles));
  return 0;
}
