#include "tandem/http/request.h"

#include <algorithm>
#include <vector>

namespace tandem::http {
namespace {

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(at, begin);
    parts.push_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

bool read_target(std::string_view target, Request& request) {
  const size_t question = target.find('?');
  const auto path = percent_decoded(target.substr(0, question), false);
  if (!path || !path->starts_with('/')) return false;
  for (const std::string_view segment : split(*path, '/')) {
    if (segment == "." || segment == "..") return false;
  }
  request.path = *path;
  if (question == std::string_view::npos) return true;
  for (const std::string_view pair : split(target.substr(question + 1), '&')) {
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const auto name = percent_decoded(pair.substr(0, equals), true);
    const auto value = percent_decoded(
        equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1), true);
    if (!name || !value) return false;
    request.query[*name] = *value;
  }
  return true;
}

// "name: value", without control characters: a header that could be taken for two is none.
bool read_header(std::string_view line, Request& request) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return false;
  const std::string_view value = trimmed(line.substr(colon + 1));
  for (const char c : value) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) return false;
  }
  const std::string name = lower(line.substr(0, colon));
  const bool is_new = request.headers.emplace(name, value).second;
  return is_new || name != "host";  // of two hosts, nobody can tell which counts
}

}  // namespace

std::string Request::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::string Request::param(const std::string& name) const {
  const auto found = query.find(name);
  return found == query.end() ? "" : found->second;
}

std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      const auto high = i + 1 < text.size() ? hex_digit(text[i + 1]) : std::nullopt;
      const auto low = i + 2 < text.size() ? hex_digit(text[i + 2]) : std::nullopt;
      if (!high || !low) return std::nullopt;
      result += static_cast<char>(*high * 16 + *low);
      i += 2;
    } else {
      result += plus_is_space && text[i] == '+' ? ' ' : text[i];
    }
    if (result.back() == '\0') return std::nullopt;
  }
  return result;
}

std::variant<Request, Refusal> parse_request(std::string_view head) {
  const size_t end = std::min(head.find("\r\n"), head.size());
  const std::vector<std::string_view> words = split(head.substr(0, end), ' ');
  if (words.size() != 3 || !is_token(words[0]) || !words[2].starts_with("HTTP/")) return Refusal{400};
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") return Refusal{505};
  Request request;
  request.method = words[0];
  if (!read_target(words[1], request)) return Refusal{400};
  for (size_t begin = end + 2; begin < head.size();) {
    const size_t line_end = std::min(head.find("\r\n", begin), head.size());
    if (!read_header(head.substr(begin, line_end - begin), request)) return Refusal{400};
    begin = line_end + 2;
  }
  if (request.method != "GET" && request.method != "HEAD") return Refusal{405};
  if (request.headers.contains("transfer-encoding") ||
      (request.headers.contains("content-length") && request.header("content-length") != "0"))
    return Refusal{413};
  const std::string connection = lower(request.header("connection"));
  request.keep_alive = words[2] == "HTTP/1.1" ? connection != "close" : connection == "keep-alive";
  if (words[2] == "HTTP/1.1" && !request.headers.contains("host")) return Refusal{400};
  return request;
}

}  // namespace tandem::http
