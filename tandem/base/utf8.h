// Names and values end up in JSON and YAML, which are UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

bool is_utf8(std::string_view text);

// The same text for a message: bytes that are not UTF-8 and control characters as \xNN.
std::string printable(std::string_view text);

}  // namespace tandem
