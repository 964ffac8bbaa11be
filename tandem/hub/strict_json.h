// JSON from files of others: parsed whole, without duplicate keys, and not nested deep.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tandem::hub {

// Throws DataError of one line that starts with `origin` where the text is not an object of valid JSON, is
// nested deeper than kMostJsonDepth, or has a key twice in one object.
nlohmann::json parse_strictly(std::string_view text, const std::string& origin);

}  // namespace tandem::hub
