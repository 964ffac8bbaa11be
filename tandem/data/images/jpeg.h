// JPEG files with libjpeg-turbo: only the part of an image that is wanted, as much smaller as is enough. One
// decoder serves a thread: it is larger than most images.
#pragma once

#include <string>

#include "tandem/data/images/picture.h"

namespace tandem {

bool is_jpeg(const StoredImage& image);

// begin(), then read() or nothing. Both throw DataError that begins with `name`.
class JpegDecoder {
 public:
  static JpegDecoder& of_this_thread();

  ImageSize begin(const StoredImage& image, const std::string& name);  // from the header alone

  // What decode_part promises. Rows below the part are not looked at where the file has its end, unless
  // `thorough`: what is broken there no pixel needs.
  void read(int64_t channels, const WantedPart& wanted, PicturePart& part);

 private:
  struct State;

  JpegDecoder();
  ~JpegDecoder();
  [[noreturn]] void refuse() const;

  State* state_;
  std::string name_;
  bool has_end_ = false;
};

}  // namespace tandem
