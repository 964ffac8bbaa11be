#include "tandem/text/end_of_text.h"

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/json_text.h"
#include "tandem/base/utf8.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// Null where there is no such file or no such key in it.
Json value_in(const std::filesystem::path& file, const char* key) {
  if (!is_there(file)) return nullptr;
  const std::string text = read_text(file);
  check_json_depth(text, file.string());
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw DataError("{}: expected a JSON object", file.string());
  return json.value(key, Json());
}

constexpr const char* kTokenizerConfig = "tokenizer_config.json";

}  // namespace

std::optional<bool> tokenizer_flag(const std::filesystem::path& directory, const char* key) {
  const Json value = value_in(directory / kTokenizerConfig, key);
  return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
}

std::optional<int32_t> end_of_text(const std::filesystem::path& directory, const Tokenizer& tokenizer) {
  const std::filesystem::path by_name = directory / kTokenizerConfig;
  Json name = value_in(by_name, "eos_token");
  if (name.is_object()) name = name.value("content", Json());
  if (name.is_string()) {
    const auto& text = name.get_ref<const std::string&>();
    if (const auto token = tokenizer.find(text)) return token;
    throw DataError("{}: eos_token '{}' is not in the tokenizer beside it", by_name.string(),
                    printable(text));
  }
  for (const char* file : {"generation_config.json", "config.json"}) {
    Json id = value_in(directory / file, "eos_token_id");
    if (id.is_array()) id = id.empty() ? Json() : id[0];
    if (id.is_null()) continue;
    if (id.is_number_integer() && id >= 0 && id < tokenizer.vocab_size()) return id.get<int32_t>();
    throw DataError("{}: eos_token_id {} is not in the tokenizer beside it, which has {} tokens",
                    (directory / file).string(), printable(id.dump()), tokenizer.vocab_size());
  }
  return std::nullopt;
}

}  // namespace tandem
