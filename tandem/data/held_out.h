// The end of a text that is kept for evaluation: a loss over text that was trained on tells nothing about
// other text.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "tandem/data/dataset.h"
#include "tandem/data/token_windows.h"

namespace tandem {

inline constexpr double kHeldOutFraction = 0.05;

// Where the last `fraction` of a text begins: at the beginning of a line where there is one, else anywhere.
size_t held_out_begin(std::string_view text, double fraction);

// The part of a text file that a split sees where the file is both the training and the evaluation set: the
// end is for evaluation, and is one window at least. Throws DataError, beginning with `name`, where the rest
// does not fill a window.
std::unique_ptr<TokenSource> open_part(const std::filesystem::path& file, Split split, int64_t context);

// The same of any tokens, whose end would begin at `cut`.
std::unique_ptr<TokenSource> part_of(const std::string& name, std::unique_ptr<TokenSource> whole, int64_t cut,
                                     Split split, int64_t context);

}  // namespace tandem
