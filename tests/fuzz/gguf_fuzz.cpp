// Any bytes as a GGUF file: refused with one line, or every tensor lies in the file, one behind the other,
// and its keys make a model or are refused with one line.
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/hub/gguf_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const hub::GgufContents contents = hub::parse_gguf(file, "fuzz");
    const std::byte* at = file.data();
    for (const hub::GgufTensorInfo& tensor : contents.tensors) {
      if (tensor.bytes.data() < at || tensor.shape.elems() < 0) std::abort();
      at = tensor.bytes.data() + tensor.bytes.size();
      if (at > file.data() + file.size()) std::abort();
    }
    if (hub::gguf_parameters(contents) < 0) std::abort();
    hub::gguf_model(contents, "fuzz");
  } catch (const DataError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
