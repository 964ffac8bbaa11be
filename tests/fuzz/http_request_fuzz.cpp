// The head of an HTTP request: any bytes are a request or a refusal, and a request's path stays below the
// root.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tandem/http/request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = tandem::http::parse_request({reinterpret_cast<const char*>(data), size});
  if (const auto* refusal = std::get_if<tandem::http::Refusal>(&parsed)) {
    if (refusal->status < 400) std::abort();
    return 0;
  }
  const auto& request = std::get<tandem::http::Request>(parsed);
  if (!request.path.starts_with('/') || request.path.find('\0') != std::string::npos) std::abort();
  if ((request.path + "/").find("/../") != std::string::npos) std::abort();
  if (request.method != "GET" && request.method != "HEAD") std::abort();
  return 0;
}
