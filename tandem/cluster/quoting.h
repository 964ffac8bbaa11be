// Values that users give stay values: each function writes a text so that its reader takes it for exactly
// that text, whatever it holds (quotes, blanks, line breaks, $(...)).
#pragma once

#include <string>
#include <string_view>

namespace tandem::cluster {

// A word of a POSIX shell, not the first of a command. A text with a zero byte is none: ConfigError names
// `flag`.
std::string shell_word(std::string_view text, std::string_view flag);

// The value in a line `#SBATCH --flag=value`, which sbatch reads itself. It ends with the line, so that a
// value with a line break (or another control character) cannot be given: ConfigError names `flag`.
std::string sbatch_value(std::string_view text, std::string_view flag);

// For a comment: control characters as \n or \xNN, so that it stays on its line.
std::string comment_text(std::string_view text);

}  // namespace tandem::cluster
