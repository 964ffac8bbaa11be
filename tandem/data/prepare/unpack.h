// The bytes of a file from its beginning to its end, unpacked where it is packed.
#pragma once

#include <memory>

#include "tandem/data/prepare/input_files.h"

namespace tandem {

class InputStream {
 public:
  virtual ~InputStream() = default;
  // Up to `most` of the next bytes; 0 at the end. Throws DataError naming the file where it is damaged or cut
  // off.
  virtual size_t read(char* out, size_t most) = 0;
  virtual int64_t consumed() const = 0;  // bytes of the file itself
  virtual void skip(int64_t bytes);      // as read does, faster where it can be
};

std::unique_ptr<InputStream> open_input(const InputFile& file);

}  // namespace tandem
