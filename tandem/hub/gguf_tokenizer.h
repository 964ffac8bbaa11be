// A tokenizer of Hugging Face's as GGUF's keys: its tokens, their kinds, merges or scores, special tokens and
// chat template.
#pragma once

#include <filesystem>

#include "tandem/hub/gguf_file.h"

namespace tandem::hub {

// Reads tokenizer.json, tokenizer_config.json, config.json and chat_template.jinja. Tokens of the model that
// the tokenizer lacks become unused ones. Throws ConfigError where llama.cpp has no such tokenizer.
void add_tokenizer(GgufWriter& out, const std::filesystem::path& directory, int64_t vocab);

}  // namespace tandem::hub
