// Any bytes as a safetensors file: refused with a DataError, or every tensor lies in the file, one behind the
// other.
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/hub/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const std::byte* at = nullptr;
    for (const hub::SafeTensor& tensor : hub::parse_safetensors(file, "fuzz")) {
      if (at != nullptr && tensor.bytes.data() != at) std::abort();
      at = tensor.bytes.data() + tensor.bytes.size();
      if (at > file.data() + file.size() || tensor.shape.elems() < 0) std::abort();
    }
  } catch (const DataError&) {
  }
  return 0;
}
