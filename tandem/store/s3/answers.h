// What S3's answers say, checked: an answer that does not say what was asked for is a DataError, never a
// guess.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::s3 {

struct ListedObject {
  std::string key;
  int64_t bytes = 0;
  int64_t modified = 0;  // seconds since 1970, 0 where it cannot be told
};

struct ListPage {
  std::vector<ListedObject> objects;
  std::string next;  // what asks for the page behind it; empty where this is the last
};

struct Upload {  // parts of an object that nobody has put together yet
  std::string key;
  std::string id;
  int64_t begun = 0;
};

struct UploadPage {
  std::vector<Upload> uploads;
  bool more = false;
  std::string next_key, next_id;
};

struct ServerError {
  std::string code;     // "SlowDown"; letters and digits only
  std::string message;  // one line of at most 200 printable characters
};

ListPage parse_list(std::string_view body);          // ListObjectsV2, asked for with encoding-type=url
UploadPage parse_uploads(std::string_view body);     // ListMultipartUploads, likewise
std::string parse_upload_id(std::string_view body);  // CreateMultipartUpload
std::optional<ServerError> parse_error(std::string_view body);  // <Error>; none where it is something else

// "bytes 0-99/1234" of a Content-Range.
struct ContentRange {
  int64_t first = 0, last = 0, total = 0;
};
std::optional<ContentRange> parse_content_range(std::string_view text);
std::optional<int64_t> parse_length(std::string_view text);  // a Content-Length

// "2026-11-18T05:07:20.000Z" in seconds since 1970.
std::optional<int64_t> parse_time(std::string_view text);

std::string url_decoded(std::string_view text);  // throws DataError where it is not encoded rightly

}  // namespace tandem::s3
