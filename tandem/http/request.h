// The head of an HTTP/1.1 request: what a server that only gives things away has to understand of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace tandem::http {

inline constexpr size_t kMostHead = 16 * 1024;  // bytes of a request line with all headers

struct Request {
  std::string method;                          // GET or HEAD
  std::string path;                            // decoded, begins with /; no segment of it is . or ..
  std::map<std::string, std::string> query;    // decoded; of a name that comes twice, the last
  std::map<std::string, std::string> headers;  // names in small letters; the first of each
  bool keep_alive = true;

  std::string header(const std::string& name) const;
  std::string param(const std::string& name) const;
};

struct Refusal {
  int status;  // 400, 405, 413, 505
};

// Of the bytes up to the empty line that ends a head, without it.
std::variant<Request, Refusal> parse_request(std::string_view head);

// %41 as A; nothing where it is not written so, or where it has a zero byte.
std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space);

}  // namespace tandem::http
