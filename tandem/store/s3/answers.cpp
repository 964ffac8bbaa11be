#include "tandem/store/s3/answers.h"

#include <algorithm>
#include <charconv>
#include <ctime>

#include "tandem/base/error.h"
#include "tandem/store/s3/xml.h"

namespace tandem::s3 {
namespace {

std::optional<int64_t> number_of(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0 ||
      text[0] == '-' || text[0] == '+')
    return std::nullopt;
  return value;
}

XmlElement parse_root(std::string_view body, std::string_view name) {
  XmlElement root = parse_xml(body);
  if (root.name != name) throw DataError("expected <{}>, found <{}>", name, root.name.substr(0, 40));
  return root;
}

std::string required(const XmlElement& element, std::string_view child) {
  const XmlElement* found = element.find(child);
  if (found == nullptr || found->text.empty()) throw DataError("<{}> without its <{}>", element.name, child);
  return found->text;
}

bool is_truncated(const XmlElement& root) {
  const std::string text = root.text_of("IsTruncated");
  if (text != "true" && text != "false" && !text.empty())
    throw DataError("<IsTruncated> is neither true nor false");
  return text == "true";
}

// Keys come encoded where the server understood that they should.
std::string key_of(const XmlElement& root, const std::string& text) {
  return root.text_of("EncodingType") == "url" ? url_decoded(text) : text;
}

}  // namespace

ListPage parse_list(std::string_view body) {
  const XmlElement root = parse_root(body, "ListBucketResult");
  ListPage page;
  for (const XmlElement& element : root.children) {
    if (element.name != "Contents") continue;
    const std::optional<int64_t> bytes = number_of(required(element, "Size"));
    if (!bytes) throw DataError("<Contents> with a <Size> that is no number");
    page.objects.push_back({key_of(root, required(element, "Key")), *bytes,
                            parse_time(element.text_of("LastModified")).value_or(0)});
  }
  if (is_truncated(root)) page.next = required(root, "NextContinuationToken");
  return page;
}

UploadPage parse_uploads(std::string_view body) {
  const XmlElement root = parse_root(body, "ListMultipartUploadsResult");
  UploadPage page;
  for (const XmlElement& element : root.children) {
    if (element.name != "Upload") continue;
    page.uploads.push_back({key_of(root, required(element, "Key")), required(element, "UploadId"),
                            parse_time(element.text_of("Initiated")).value_or(0)});
  }
  page.more = is_truncated(root);
  if (page.more) {
    page.next_key = key_of(root, required(root, "NextKeyMarker"));
    page.next_id = root.text_of("NextUploadIdMarker");
  }
  return page;
}

std::string parse_upload_id(std::string_view body) {
  return required(parse_root(body, "InitiateMultipartUploadResult"), "UploadId");
}

std::optional<ServerError> parse_error(std::string_view body) {
  constexpr size_t kMostCode = 60, kMostMessage = 200;
  try {
    XmlElement root = parse_xml(body);
    const XmlElement* error = root.name == "ErrorResponse" ? root.find("Error") : &root;  // STS wraps it
    if (error == nullptr || error->name != "Error") return std::nullopt;
    ServerError found{error->text_of("Code"), error->text_of("Message")};
    std::erase_if(found.code, [](char c) {
      return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.');
    });
    found.code.resize(std::min(found.code.size(), kMostCode));
    for (char& c : found.message) {
      if (c < ' ' || c > '~') c = ' ';
    }
    found.message.resize(std::min(found.message.size(), kMostMessage));
    return found;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || dash > slash) return std::nullopt;
  const auto first = number_of(text.substr(0, dash));
  const auto last = number_of(text.substr(dash + 1, slash - dash - 1));
  const auto total = number_of(text.substr(slash + 1));
  if (!first || !last || !total || *first > *last || *last >= *total) return std::nullopt;
  return ContentRange{*first, *last, *total};
}

std::optional<int64_t> parse_length(std::string_view text) { return number_of(text); }

std::optional<int64_t> parse_time(std::string_view text) {
  // "2026-11-18T05:07:20Z", or with a fraction of a second before the Z
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd";
  if (text.size() < kForm.size()) return std::nullopt;
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == 'd' ? !digit : text[i] != kForm[i]) return std::nullopt;
  }
  const auto part = [&](size_t at, size_t length) {
    return static_cast<int>(number_of(text.substr(at, length)).value_or(0));
  };
  std::tm time{};
  time.tm_year = part(0, 4) - 1900;
  time.tm_mon = part(5, 2) - 1;
  time.tm_mday = part(8, 2);
  time.tm_hour = part(11, 2);
  time.tm_min = part(14, 2);
  time.tm_sec = part(17, 2);
  if (time.tm_mon < 0 || time.tm_mon > 11 || time.tm_mday < 1 || time.tm_mday > 31) return std::nullopt;
  return static_cast<int64_t>(::timegm(&time));
}

std::string url_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      unsigned value = 0;
      const std::string_view digits = text.substr(i + 1, 2);
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
      if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2)
        throw DataError("a key with a wrong escape at byte {}", i);
      decoded += static_cast<char>(value);
      i += 2;
    }
  }
  return decoded;
}

}  // namespace tandem::s3
