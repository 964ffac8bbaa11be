// A checkpoint as a GGUF file for llama.cpp: llama, qwen2, qwen3, gemma2, gemma3_text and gpt2, with their
// tokenizer.
#pragma once

#include <filesystem>

#include "tandem/hub/export.h"
#include "tandem/hub/gguf_file.h"

namespace tandem::hub {

// Matrices are of `type`, vectors fp32. Throws ConfigError naming the key where llama.cpp's model of the
// family cannot do what this one does. Returns the bytes of weights.
int64_t export_gguf(const ExportedModel& model, const std::filesystem::path& file, GgufType type,
                    const std::function<void(int64_t done, int64_t total)>& told = {},
                    ThreadPool* pool = nullptr);

}  // namespace tandem::hub
