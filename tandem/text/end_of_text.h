// The token that ends a text, as the files beside a tokenizer say it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "tandem/text/tokenizer.h"

namespace tandem {

// `eos_token` of tokenizer_config.json, else `eos_token_id` of generation_config.json, else of config.json;
// the first one of a list. Nothing where none of them says it. Throws DataError where a file is damaged or
// names a token that the tokenizer lacks.
std::optional<int32_t> end_of_text(const std::filesystem::path& directory, const Tokenizer& tokenizer);

// A switch of tokenizer_config.json, such as add_bos_token; nothing where it is not set.
std::optional<bool> tokenizer_flag(const std::filesystem::path& directory, const char* key);

}  // namespace tandem
