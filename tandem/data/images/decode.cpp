#include "tandem/data/images/decode.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 28;

const unsigned char* data_of(const StoredImage& image) {
  return reinterpret_cast<const unsigned char*>(image.bytes.data());
}

bool is_jpeg(const StoredImage& image) {
  const unsigned char* bytes = data_of(image);
  return image.bytes.size() > 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

bool is_png(const StoredImage& image) {
  return image.bytes.size() > 8 && png_sig_cmp(data_of(image), 0, 8) == 0;
}

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw DataError("{}: broken image: {}; remove or replace it, or set data.broken to skip", name, why);
}

void check_size(const std::string& name, int64_t height, int64_t width) {
  if (height < 1 || width < 1 || height > kMostPixels / width)
    refuse(name, fmt::format("{} x {} pixels, expected at most {}", height, width, kMostPixels));
}

// --- JPEG -----------------------------------------------------------------------------------------------

// Made once a thread: it is larger than most images.
tjhandle jpeg_decoder() {
  struct Destroy {
    void operator()(void* handle) const { tjDestroy(handle); }
  };
  thread_local const std::unique_ptr<void, Destroy> decoder(tjInitDecompress());
  if (decoder == nullptr) throw DeviceError("libjpeg-turbo: cannot be started: {}", tjGetErrorStr2(nullptr));
  return decoder.get();
}

struct JpegHeader {
  int width = 0, height = 0, sampling = 0, space = 0;
};

JpegHeader jpeg_header(const StoredImage& image, const std::string& name) {
  JpegHeader header;
  const tjhandle decoder = jpeg_decoder();
  if (tjDecompressHeader3(decoder, data_of(image), image.bytes.size(), &header.width, &header.height,
                          &header.sampling, &header.space) != 0 &&
      tjGetErrorCode(decoder) != TJERR_WARNING) {
    refuse(name, tjGetErrorStr2(decoder));
  }
  check_size(name, header.height, header.width);
  return header;
}

// A warning that pixels are missing; others are about bytes that no pixel needs.
bool lost_pixels(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text.find("premature") != std::string::npos || text.find("bad huffman") != std::string::npos;
}

// Four inks as printers use them, which programs store inverted, to red, green and blue, or to grey.
std::vector<uint8_t> from_inks(const std::vector<uint8_t>& inks, int64_t channels) {
  const size_t pixels = inks.size() / 4;
  std::vector<uint8_t> out(pixels * static_cast<size_t>(channels));
  for (size_t i = 0; i < pixels; ++i) {
    const uint8_t* ink = inks.data() + 4 * i;
    int rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = (ink[c] * ink[3] + 127) / 255;
    if (channels == 1) {
      out[i] = static_cast<uint8_t>((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
    } else {
      for (size_t c = 0; c < 3; ++c) out[3 * i + c] = static_cast<uint8_t>(rgb[c]);
    }
  }
  return out;
}

Picture decode_jpeg(const StoredImage& image, const std::string& name, int64_t channels, int64_t reduce) {
  const JpegHeader header = jpeg_header(image, name);
  const tjscalingfactor factor{1, static_cast<int>(reduce)};
  const bool inks = header.space == TJCS_CMYK || header.space == TJCS_YCCK;
  const int format = inks ? TJPF_CMYK : channels == 1 ? TJPF_GRAY : TJPF_RGB;
  const int height = TJSCALED(header.height, factor), width = TJSCALED(header.width, factor);
  Picture picture{height, width, channels, {}};
  picture.pixels.resize(static_cast<size_t>(height) * static_cast<size_t>(width * tjPixelSize[format]));
  const tjhandle decoder = jpeg_decoder();
  if (tjDecompress2(decoder, data_of(image), image.bytes.size(), picture.pixels.data(), width, 0, height,
                    format, 0) != 0) {
    const std::string why = tjGetErrorStr2(decoder);
    if (tjGetErrorCode(decoder) != TJERR_WARNING || lost_pixels(why)) refuse(name, why);
  }
  if (inks) picture.pixels = from_inks(picture.pixels, channels);
  return picture;
}

// --- PNG ------------------------------------------------------------------------------------------------

class PngReader {
 public:
  PngReader(const StoredImage& image, const std::string& name) : name_(name) {
    image_.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_memory(&image_, image.bytes.data(), image.bytes.size()) == 0)
      refuse(name_, image_.message);
    check_size(name_, image_.height, image_.width);
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
      refuse(name_, image_.message);
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

}  // namespace

ImageSize size_of(const StoredImage& image, const std::string& name) {
  if (!image.is_encoded()) return {image.height, image.width};
  if (is_jpeg(image)) {
    const JpegHeader header = jpeg_header(image, name);
    return {header.height, header.width};
  }
  if (is_png(image)) return PngReader(image, name).size();
  refuse(name, image.bytes.empty() ? "the file is empty" : "neither JPEG nor PNG");
}

Picture decode(const StoredImage& image, const std::string& name, int64_t channels, int64_t reduce) {
  TANDEM_CHECK(channels == 1 || channels == 3, "{} channels", channels);
  if (!image.is_encoded()) return from_pixels(image, channels);
  if (is_jpeg(image)) return decode_jpeg(image, name, channels, reduce);
  if (is_png(image)) return PngReader(image, name).read(channels);
  refuse(name, image.bytes.empty() ? "the file is empty" : "neither JPEG nor PNG");
}

}  // namespace tandem
