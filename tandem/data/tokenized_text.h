// A text file as the tokens of a tokenizer, made when it is opened and kept in memory: for files that are
// small enough for every start to do so. Larger ones are prepared once (prepare/prepare.h).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tandem/data/token_windows.h"

namespace tandem {

inline constexpr int64_t kMostTokenizedBytes = int64_t{64} << 20;

// `part`: the file is both sets, and this is the one that is wanted (held_out.h). Throws DataError where the
// file is no text, or too large.
std::unique_ptr<TokenSource> open_tokenized(const std::filesystem::path& file, const std::string& tokenizer,
                                            std::optional<Split> part, int64_t context);

// How many U+FFFD a tokenizer reads in place of what is no UTF-8 in the file.
int64_t num_replaced_in(const std::filesystem::path& file);

}  // namespace tandem
