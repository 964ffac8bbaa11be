// A Config as text. Everything is generated from the table of keys, so nothing can be missing, and
// load_config of to_yaml, and config_from_json of to_json, give back an equal Config.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/config/load.h"

namespace tandem {

struct ExplainRow {
  std::string key;
  std::string value;
  std::string origin;  // see ResolvedConfig::origin
  std::string doc;
};

std::vector<ExplainRow> explain(const ResolvedConfig& resolved);  // keys of the model's family only

nlohmann::json to_json(const Config& config);
std::string to_yaml(const Config& config);

std::string keys_markdown();  // every key with its default, what it expects and what it is: the docs page

}  // namespace tandem
