// Files such as ~/.aws/credentials: sections in brackets, "key = value" in them, comments behind # and ;.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace tandem::s3 {

using IniFile = std::map<std::string, std::map<std::string, std::string>>;

// Lines that are none of these are left alone, as other readers of these files do.
IniFile parse_ini(std::string_view text);

}  // namespace tandem::s3
