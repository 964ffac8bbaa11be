// TFRecords, the frame of TensorBoard's event files: length, its check sum, the bytes, theirs. Both sums are
// crc32c, turned and shifted so that sums of sums stay useful ("masked").
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

uint32_t masked_crc32c(std::string_view bytes);

std::string tfrecord(std::string_view bytes);  // with its frame

// Reads records one after the other from the beginning of a file's bytes.
class TfRecordReader {
 public:
  explicit TfRecordReader(std::string_view file) : file_(file) {}

  std::optional<std::string_view> next();        // nothing at the end, or where no whole record follows
  size_t position() const { return position_; }  // behind the last record

  // Of what follows the last record: false where it is nothing, or the beginning of a record that was half
  // written, true where it is no record.
  bool damaged() const { return damaged_; }

 private:
  std::string_view file_;
  size_t position_ = 0;
  bool damaged_ = false;
};

}  // namespace tandem
