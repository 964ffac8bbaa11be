// A config file of another program as a tree of values: JSON, YAML or TOML, by the end of its name.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace tandem::convert {

using Value = nlohmann::ordered_json;  // keys in the order of the file

// Throws ConfigError that starts with `file:line` where the text is not what its name says, or no table.
Value read_document(const std::filesystem::path& path);

Value parse_json(const std::string& text, const std::string& file);
Value parse_yaml(const std::string& text, const std::string& file);
Value parse_toml(const std::string& text, const std::string& file);

}  // namespace tandem::convert
