#include "tandem/hub/strict_json.h"

#include <unordered_set>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/json_text.h"
#include "tandem/base/utf8.h"

namespace tandem::hub {
namespace {

// What went wrong, without nlohmann's number of the exception.
std::string reason_of(const nlohmann::json::exception& error) {
  const std::string what = error.what();
  const size_t end = what.find("] ");
  return printable(end == std::string::npos ? what : what.substr(end + 2));
}

}  // namespace

nlohmann::json parse_strictly(std::string_view text, const std::string& origin) {
  using Event = nlohmann::json::parse_event_t;
  check_json_depth(text, origin);
  std::vector<std::unordered_set<std::string>> open;  // the keys of each object that is not yet closed
  const auto watch = [&](int, Event event, nlohmann::json& value) {
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(value.get_ref<const std::string&>()).second)
      throw DataError("{}: key '{}' is there twice", origin, printable(value.get_ref<const std::string&>()));
    return true;
  };
  try {
    nlohmann::json json = nlohmann::json::parse(text, watch);
    if (!json.is_object()) throw DataError("{}: expected a JSON object, found {}", origin, json.type_name());
    return json;
  } catch (const nlohmann::json::exception& error) {
    throw DataError("{}: not valid JSON: {}", origin, reason_of(error));
  }
}

}  // namespace tandem::hub
