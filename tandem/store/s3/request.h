// An HTTP request as S3's are, before it is signed and sent.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace tandem::s3 {

struct Request {
  std::string method = "GET";
  std::string scheme = "https";
  std::string host;                            // with ":port" where it is not the scheme's own
  std::string path = "/";                      // encoded
  std::map<std::string, std::string> query;    // not encoded
  std::map<std::string, std::string> headers;  // names in small letters
  std::span<const std::byte> body;             // has to stay until the answer is there

  std::string url() const;
};

// Everything but letters, digits and "-._~" as %XX; slashes stay where they separate.
std::string url_encoded(std::string_view text, bool keep_slashes = false);

// "a=1&b=", sorted and encoded: as it is sent and as it is signed.
std::string query_text(const std::map<std::string, std::string>& query);

}  // namespace tandem::s3
