#include "tandem/store/s3/request.h"

#include <fmt/format.h>

#include <vector>

namespace tandem::s3 {

std::string url_encoded(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slashes);
    encoded += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

std::string query_text(const std::map<std::string, std::string>& query) {
  std::map<std::string, std::string> encoded;  // the order is that of encoded names
  for (const auto& [name, value] : query) encoded[url_encoded(name)] = url_encoded(value);
  std::string text;
  for (const auto& [name, value] : encoded)
    text += fmt::format("{}{}={}", text.empty() ? "" : "&", name, value);
  return text;
}

std::string Request::url() const {
  return fmt::format("{}://{}{}{}{}", scheme, host, path, query.empty() ? "" : "?", query_text(query));
}

}  // namespace tandem::s3
