#include "tandem/pipeline/words.h"

#include <cctype>

#include "tandem/base/error.h"

namespace tandem::pipeline {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool goes_on_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

// The length of "{name}" at `at`, or 0.
size_t braced_name(std::string_view text, size_t at) {
  if (at + 2 >= text.size() || text[at] != '{' || !begins_name(text[at + 1])) return 0;
  size_t end = at + 2;
  while (end < text.size() && goes_on_name(text[end])) ++end;
  return end < text.size() && text[end] == '}' ? end + 1 - at : 0;
}

// Calls text(char) for what stands for itself and name(string_view) for each placeholder.
template <typename Text, typename Name>
void walk(std::string_view text, bool for_shell, const Text& on_text, const Name& on_name) {
  for (size_t at = 0; at < text.size();) {
    const size_t doubled = text[at] == '{' ? braced_name(text, at + 1) : 0;
    if (doubled > 0 && at + 1 + doubled < text.size() && text[at + 1 + doubled] == '}') {
      for (char c : text.substr(at + 1, doubled)) on_text(c);
      at += doubled + 2;
      continue;
    }
    const size_t size = braced_name(text, at);
    if (size > 0 && !(for_shell && at > 0 && text[at - 1] == '$')) {
      on_name(text.substr(at + 1, size - 2));
      at += size;
      continue;
    }
    on_text(text[at++]);
  }
}

// Where in a shell's text a character stands.
class Quotes {
 public:
  enum class Kind { None, Single, Double };
  void pass(char c) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\' && kind_ != Kind::Single) {
      escaped_ = true;
    } else if (c == '\'' && kind_ != Kind::Double) {
      kind_ = kind_ == Kind::Single ? Kind::None : Kind::Single;
    } else if (c == '"' && kind_ != Kind::Single) {
      kind_ = kind_ == Kind::Double ? Kind::None : Kind::Double;
    }
  }
  Kind kind() const { return kind_; }

 private:
  Kind kind_ = Kind::None;
  bool escaped_ = false;
};

const std::string& only_value(const std::vector<std::string>& values, std::string_view name,
                              const std::string& place) {
  if (values.size() != 1) {
    throw ConfigError(
        "{}: {{{}}} stands for {} values; expected one where it is a part of a word; let it be a word of its "
        "own",
        place, name, values.size());
  }
  return values.front();
}

}  // namespace

std::vector<std::string> split_words(std::string_view text, const std::string& place) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;  // of a word: '' is one, too
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (kBlanks.find(c) != std::string_view::npos) {
      if (inside) words.push_back(std::move(word));
      word.clear();
      inside = false;
      continue;
    }
    inside = true;
    if (c == '\\' && at + 1 < text.size()) {
      word += text[++at];
    } else if (c == '\'' || c == '"') {
      size_t end = at + 1;
      for (; end < text.size() && text[end] != c; ++end) {
        const bool escapes = c == '"' && text[end] == '\\' && end + 1 < text.size() &&
                             std::string_view("\"\\$`").find(text[end + 1]) != std::string_view::npos;
        if (escapes) ++end;
        word += text[end];
      }
      if (end >= text.size()) throw ConfigError("{}: a quote ({}) is not closed; close it", place, c);
      at = end;
    } else {
      word += c;
    }
  }
  if (inside) words.push_back(std::move(word));
  return words;
}

std::vector<std::string> placeholders(std::string_view text, bool for_shell) {
  std::vector<std::string> names;
  walk(
      text, for_shell, [](char) {}, [&](std::string_view name) { names.emplace_back(name); });
  return names;
}

std::string fill_text(std::string_view text, const Lookup& lookup, const std::string& place) {
  std::string filled;
  walk(
      text, false, [&](char c) { filled += c; },
      [&](std::string_view name) { filled += only_value(lookup(name), name, place); });
  return filled;
}

std::vector<std::string> fill_words(const std::vector<std::string>& words, const Lookup& lookup,
                                    const std::string& place) {
  std::vector<std::string> filled;
  for (const std::string& word : words) {
    if (braced_name(word, 0) == word.size()) {
      for (std::string& value : lookup(std::string_view(word).substr(1, word.size() - 2)))
        filled.push_back(std::move(value));
    } else {
      filled.push_back(fill_text(word, lookup, place));
    }
  }
  return filled;
}

Script fill_script(std::string_view text, const Lookup& lookup) {
  Script script;
  Quotes quotes;
  const auto on_text = [&](char c) {
    quotes.pass(c);
    script.text += c;
  };
  const auto on_name = [&](std::string_view name) {
    std::string values;
    for (const std::string& value : lookup(name)) {
      const std::string variable = fmt::format("tandem_value_{}", script.variables.size());
      script.variables.push_back(variable + "=" + value);
      if (!values.empty()) values += quotes.kind() == Quotes::Kind::None ? "\" \"" : " ";
      values += "${" + variable + "}";
    }
    switch (quotes.kind()) {
      case Quotes::Kind::None:
        if (!values.empty()) script.text += "\"" + values + "\"";
        break;
      case Quotes::Kind::Double: script.text += values; break;
      case Quotes::Kind::Single: script.text += "'\"" + values + "\"'"; break;
    }
  };
  walk(text, true, on_text, on_name);
  return script;
}

}  // namespace tandem::pipeline
