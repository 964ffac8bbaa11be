#include "tandem/store/s3/ini_file.h"

namespace tandem::s3 {
namespace {

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

}  // namespace

IniFile parse_ini(std::string_view text) {
  IniFile file;
  std::string section;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view raw = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view line = without_blanks(raw);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') {
      section = without_blanks(line.substr(1, std::min(line.find(']'), line.size()) - 1));
      file[section];
      continue;
    }
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || raw[0] == ' ' || raw[0] == '\t') continue;  // of a nested list
    std::string_view value = line.substr(equals + 1);
    for (const std::string_view comment : {" #", " ;"})
      value = value.substr(0, std::min(value.find(comment), value.size()));
    file[section][std::string(without_blanks(line.substr(0, equals)))] = trimmed(value);
  }
  return file;
}

}  // namespace tandem::s3
