#include "tandem/data/images/jpeg.h"

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs what comes before it.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/data/images/broken_image.h"

namespace tandem {
namespace {

// The library leaves through an error by longjmp: nothing with a destructor may live in a function that it
// jumps over. So each step is a function of its own, of plain values.
struct Errors {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  char why[JMSG_LENGTH_MAX];
  bool lost;  // pixels
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  errors->manager.format_message(info, errors->why);
  std::longjmp(errors->back, 1);
}

// A warning that pixels are missing; others are about bytes that no pixel needs.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  auto* errors = reinterpret_cast<Errors*>(info->err);
  const int code = errors->manager.msg_code;
  if (code != JWRN_JPEG_EOF && code != JWRN_HUFF_BAD_CODE && code != JWRN_HIT_MARKER) return;
  errors->manager.format_message(info, errors->why);
  errors->lost = true;
}

bool read_header(jpeg_decompress_struct* info, const StoredImage* image) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  if (setjmp(errors->back) != 0) return false;
  errors->lost = false;
  jpeg_abort_decompress(info);  // of an image before it
  jpeg_mem_src(info, reinterpret_cast<const unsigned char*>(image->bytes.data()),
               static_cast<unsigned long>(image->bytes.size()));
  jpeg_read_header(info, TRUE);
  return true;
}

// Which pixels of the reduced image are read.
struct Area {
  JDIMENSION top, bottom, left, width;
};

bool start(jpeg_decompress_struct* info, J_COLOR_SPACE space, int64_t reduce) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  if (setjmp(errors->back) != 0) return false;
  info->out_color_space = space;
  info->scale_num = 1;
  info->scale_denom = static_cast<unsigned>(reduce);
  jpeg_start_decompress(info);
  return true;
}

// It begins where a block of pixels does, and may become wider by that.
bool narrow(jpeg_decompress_struct* info, Area* area) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  if (setjmp(errors->back) != 0) return false;
  if (area->width < info->output_width) jpeg_crop_scanline(info, &area->left, &area->width);
  return true;
}

// `rest`: a row for what follows, where that is to be looked at, too.
bool read_rows(jpeg_decompress_struct* info, const Area* area, unsigned char* dst, size_t pitch,
               unsigned char* rest) {
  constexpr JDIMENSION kAtOnce = 8;
  auto* errors = reinterpret_cast<Errors*>(info->err);
  if (setjmp(errors->back) != 0) return false;
  if (area->top > 0) jpeg_skip_scanlines(info, area->top);
  while (info->output_scanline < area->bottom) {
    JSAMPROW rows[kAtOnce];
    const JDIMENSION count = std::min(kAtOnce, area->bottom - info->output_scanline);
    for (JDIMENSION i = 0; i < count; ++i) rows[i] = dst + (info->output_scanline - area->top + i) * pitch;
    jpeg_read_scanlines(info, rows, count);
  }
  if (rest != nullptr && info->output_scanline < info->output_height) {
    // Rows up to the last one are only read if that one is wanted.
    JSAMPROW last = rest;
    if (const JDIMENSION more = info->output_height - info->output_scanline - 1; more > 0)
      jpeg_skip_scanlines(info, more);
    jpeg_read_scanlines(info, &last, 1);
  }
  jpeg_abort_decompress(info);
  return !errors->lost;
}

// With a margin, so that what is interpolated at the edges of a part is not seen.
Area area_of(const PixelBox& box, JDIMENSION height, JDIMENSION width) {
  constexpr double kMargin = 2;
  const auto at_least = [](double edge) { return static_cast<JDIMENSION>(std::max(0.0, std::floor(edge))); };
  const auto at_most = [](double edge, JDIMENSION size) {
    return static_cast<JDIMENSION>(std::clamp(std::ceil(edge), 1.0, static_cast<double>(size)));
  };
  Area area{};
  area.top = std::min(at_least(box.top - kMargin), height - 1);
  area.bottom = std::max(area.top + 1, at_most(box.top + box.height + kMargin, height));
  area.left = std::min(at_least(box.left - kMargin), width - 1);
  area.width = std::max(area.left + 1, at_most(box.left + box.width + kMargin, width)) - area.left;
  return area;
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

}  // namespace

bool is_jpeg(const StoredImage& image) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(image.bytes.data());
  return image.bytes.size() > 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

struct JpegDecoder::State {
  jpeg_decompress_struct info{};
  Errors errors{};
  std::vector<uint8_t> spare;
};

JpegDecoder::JpegDecoder() : state_(new State) {
  state_->info.err = jpeg_std_error(&state_->errors.manager);
  state_->errors.manager.error_exit = on_error;
  state_->errors.manager.emit_message = on_message;
  if (setjmp(state_->errors.back) != 0) throw DeviceError("libjpeg-turbo: cannot be started");
  jpeg_create_decompress(&state_->info);
}

JpegDecoder::~JpegDecoder() {
  jpeg_destroy_decompress(&state_->info);
  delete state_;
}

JpegDecoder& JpegDecoder::of_this_thread() {
  thread_local JpegDecoder decoder;
  return decoder;
}

void JpegDecoder::refuse() const { refuse_image(name_, state_->errors.why); }

ImageSize JpegDecoder::begin(const StoredImage& image, const std::string& name) {
  name_ = name;
  if (!read_header(&state_->info, &image)) refuse();
  const size_t size = image.bytes.size();
  has_end_ = std::to_integer<int>(image.bytes[size - 2]) == 0xff &&
             std::to_integer<int>(image.bytes[size - 1]) == JPEG_EOI;
  check_image_size(name, state_->info.image_height, state_->info.image_width);
  return {state_->info.image_height, state_->info.image_width};
}

void JpegDecoder::read(int64_t channels, const WantedPart& wanted, PicturePart& part) {
  jpeg_decompress_struct& info = state_->info;
  const bool inks = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  const J_COLOR_SPACE space = inks ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_EXT_RGBX;
  const double height = info.image_height, width = info.image_width;
  if (!start(&info, space, wanted.reduce)) refuse();
  const double down = info.output_height / height, along = info.output_width / width;
  const PixelBox box{wanted.box.top * down, wanted.box.left * along, wanted.box.height * down,
                     wanted.box.width * along};
  part.whole = {info.output_height, info.output_width};
  Area area = area_of(box, info.output_height, info.output_width);
  if (!narrow(&info, &area)) refuse();
  const int64_t lanes = space == JCS_GRAYSCALE ? 1 : 4;
  part.top = area.top;
  part.left = area.left;
  part.picture.height = area.bottom - area.top;
  part.picture.width = info.output_width;
  part.picture.channels = lanes;
  const size_t pitch = static_cast<size_t>(info.output_width) * static_cast<size_t>(lanes);
  part.picture.pixels.resize(pitch * static_cast<size_t>(part.picture.height));
  state_->spare.resize(pitch);
  unsigned char* rest = wanted.thorough || !has_end_ ? state_->spare.data() : nullptr;
  if (!read_rows(&info, &area, part.picture.pixels.data(), pitch, rest)) refuse();
  if (inks) {
    part.picture.pixels = from_inks(part.picture.pixels, channels);
    part.picture.channels = channels;
  }
}

}  // namespace tandem
