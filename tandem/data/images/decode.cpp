#include "tandem/data/images/decode.h"

#include <png.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/data/images/broken_image.h"
#include "tandem/data/images/jpeg.h"

namespace tandem {
namespace {

const unsigned char* data_of(const StoredImage& image) {
  return reinterpret_cast<const unsigned char*>(image.bytes.data());
}

bool is_png(const StoredImage& image) {
  return image.bytes.size() > 8 && png_sig_cmp(data_of(image), 0, 8) == 0;
}

// --- PNG ------------------------------------------------------------------------------------------------

class PngReader {
 public:
  PngReader(const StoredImage& image, const std::string& name) : name_(name) {
    image_.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_memory(&image_, image.bytes.data(), image.bytes.size()) == 0)
      refuse_image(name_, image_.message);
    check_image_size(name_, image_.height, image_.width);
  }
  ~PngReader() { png_image_free(&image_); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  ImageSize size() const { return {image_.height, image_.width}; }

  Picture read(int64_t channels) {
    image_.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    Picture picture{image_.height, image_.width, channels, {}};
    picture.pixels.resize(PNG_IMAGE_SIZE(image_));
    const png_color black{};
    if (png_image_finish_read(&image_, &black, picture.pixels.data(), 0, nullptr) == 0)
      refuse_image(name_, image_.message);
    return picture;
  }

 private:
  const std::string& name_;
  png_image image_{};
};

// --- pixels ---------------------------------------------------------------------------------------------

Picture from_pixels(const StoredImage& image, int64_t channels) {
  Picture picture{image.height, image.width, channels, {}};
  const auto pixels = static_cast<size_t>(image.height * image.width);
  const auto has = static_cast<size_t>(image.channels), wants = static_cast<size_t>(channels);
  TANDEM_CHECK(image.bytes.size() == pixels * has);
  picture.pixels.resize(pixels * wants);
  const unsigned char* src = data_of(image);
  if (has == wants) {
    std::memcpy(picture.pixels.data(), src, image.bytes.size());
    return picture;
  }
  for (size_t i = 0; i < pixels; ++i) {
    if (wants == 1) {
      const unsigned char* rgb = src + has * i;
      picture.pixels[i] = static_cast<uint8_t>((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
    } else {
      std::fill_n(picture.pixels.begin() + static_cast<int64_t>(wants * i), wants, src[i]);
    }
  }
  return picture;
}

// The whole of it, without a look at what is wanted.
void take_whole(Picture picture, PicturePart& part) {
  const ImageSize size{picture.height, picture.width};
  part = {std::move(picture), 0, 0, size};
}

}  // namespace

void decode_part(const StoredImage& image, const std::string& name, int64_t channels,
                 const std::function<WantedPart(const ImageSize& size)>& choose, PicturePart& part) {
  TANDEM_CHECK(channels == 1 || channels == 3, "{} channels", channels);
  if (!image.is_encoded()) {
    choose({image.height, image.width});
    return take_whole(from_pixels(image, channels), part);
  }
  if (is_jpeg(image)) {
    JpegDecoder& decoder = JpegDecoder::of_this_thread();
    const ImageSize size = decoder.begin(image, name);
    return decoder.read(channels, choose(size), part);
  }
  if (!is_png(image)) refuse_image(name, image.bytes.empty() ? "the file is empty" : "neither JPEG nor PNG");
  PngReader reader(image, name);
  choose(reader.size());
  take_whole(reader.read(channels), part);
}

}  // namespace tandem
