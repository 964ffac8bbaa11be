// evaluate --logits: what a model says of one sequence, for comparison with other programs.
#pragma once

#include <string>

#include "tandem/cli/command.h"
#include "tandem/cli/model_source.h"

namespace tandem::cli {

// "1,2,3". Throws ConfigError naming what is no token of the vocabulary.
std::vector<int32_t> parse_ids(const std::string& text, int64_t vocab);

// Writes a NumPy file: fp32, [tokens, vocabulary].
void write_logits(const ModelSource& source, const BuildModel& model, std::vector<int32_t> ids,
                  const std::string& file);

}  // namespace tandem::cli
