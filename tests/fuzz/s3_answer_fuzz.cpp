// Any bytes as what an S3 server sends: refused with a DataError, or what is believed of it keeps what the
// header promises.
#include <algorithm>
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/store/s3/answers.h"
#include "tandem/store/s3/ini_file.h"
#include "tandem/store/s3/xml.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

template <typename Parse>
void attempt(Parse&& parse) {
  try {
    parse();
  } catch (const tandem::DataError&) {
  }
}

size_t count_levels(const tandem::s3::XmlElement& element) {
  size_t levels = 0;
  for (const auto& child : element.children) levels = std::max(levels, count_levels(child));
  return levels + 1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::s3;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  attempt([&] {
    const XmlElement root = parse_xml(text);
    require(count_levels(root) <= static_cast<size_t>(kMostXmlLevels) && !root.name.empty());
    require(parse_xml("<a>" + xml_escaped(root.text) + "</a>").text == root.text);
  });
  attempt([&] {
    for (const ListedObject& object : parse_list(text).objects)
      require(object.bytes >= 0 && !object.key.empty());
  });
  attempt([&] { parse_uploads(text); });
  attempt([&] { require(!parse_upload_id(text).empty()); });
  attempt([&] { url_decoded(text); });
  if (const auto error = parse_error(text)) {
    require(error->message.size() <= 200 && error->code.size() <= 60);
    for (const char c : error->message) require(c >= ' ' && c <= '~');
  }
  if (const auto range = parse_content_range(text))
    require(range->first >= 0 && range->first <= range->last && range->last < range->total);
  if (const auto length = parse_length(text)) require(*length >= 0);
  parse_time(text);
  parse_ini(text);
  return 0;
}
