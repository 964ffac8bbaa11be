// YAML of a tree of values, as a person would write it. Texts that YAML could take for anything else
// (numbers, true,
// ~, what holds quotes, colons or line breaks) are quoted, or stand as a block of lines where they are one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tandem::cluster {

// Objects keep the order of their keys. A text that is not UTF-8 has no form in YAML: ConfigError.
std::string yaml_text(const nlohmann::ordered_json& tree);

}  // namespace tandem::cluster
