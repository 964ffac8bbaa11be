#include "tandem/http/url.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::http {

std::string host_of(const std::string& url) {
  const size_t begin = url.find("://") + 3;
  const size_t end = std::min(url.find_first_of("/?#", begin), url.size());
  const size_t at = url.rfind('@', end);
  const size_t from = at != std::string::npos && at > begin ? at + 1 : begin;
  return url.substr(0, begin) + url.substr(from, end - from);
}

std::string percent_encoded(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos;
    encoded += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

}  // namespace tandem::http
