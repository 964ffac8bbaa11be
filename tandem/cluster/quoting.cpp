#include "tandem/cluster/quoting.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/utf8.h"

namespace tandem::cluster {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_./:,=@%+-").find(c) != std::string_view::npos;
}

bool is_plain(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return is_plain(c); });
}

}  // namespace

std::string shell_word(std::string_view text, std::string_view flag) {
  if (text.find('\0') != std::string_view::npos)
    throw ConfigError("{}: '{}' holds a zero byte, which no command line can", flag, printable(text));
  if (is_plain(text)) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

std::string sbatch_value(std::string_view text, std::string_view flag) {
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    throw ConfigError("{}: '{}' holds a line break or another control character, which sbatch cannot read",
                      flag, printable(text));
  if (is_plain(text)) return std::string(text);
  std::string value = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') value += '\\';
    value += c;
  }
  return value + "\"";
}

std::string comment_text(std::string_view text) { return printable(text); }

}  // namespace tandem::cluster
