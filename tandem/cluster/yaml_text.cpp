#include "tandem/cluster/yaml_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/utf8.h"

namespace tandem::cluster {
namespace {

using Json = nlohmann::ordered_json;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Words that some version of YAML takes for a boolean or null.
bool is_reserved(std::string_view text) {
  static constexpr std::array<std::string_view, 11> kWords = {"true", "false", "yes", "no",  "on", "off",
                                                              "null", "y",     "n",   "nan", "inf"};
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return std::find(kWords.begin(), kWords.end(), lower) != kWords.end();
}

// Begins with a letter or a slash, and holds nothing that means anything to YAML.
bool is_plain_scalar(std::string_view text) {
  if (text.empty() || !(is_letter(text.front()) || text.front() == '/') || is_reserved(text)) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter(c) || is_digit(c) || std::string_view("-_./").find(c) != std::string_view::npos;
  });
}

// Several lines of visible ASCII, of which the last ends with its line and none ends with a blank.
bool is_block(std::string_view text) {
  if (text.size() < 2 || !text.ends_with('\n') || text.ends_with("\n\n") || text.front() == ' ' ||
      text.front() == '\n')
    return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '\n' && text[i - 1] == ' ') return false;
    if (c != '\n' && (c < 0x20 || c > 0x7e)) return false;
  }
  return true;
}

// JSON's escapes are YAML's, too; what JSON leaves as it is beyond ASCII, YAML may take for a line break.
std::string in_quotes(std::string_view text) {
  if (!is_utf8(text)) throw ConfigError("'{}': is not UTF-8, which YAML is", printable(text));
  std::string json = Json(text).dump(-1, ' ', /*ensure_ascii=*/true);
  // Beyond 16 bits JSON writes two numbers where YAML has one.
  std::string out;
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '\x7f') {
      out += "\\x7f";
      continue;
    }
    if (json[i] != '\\') {
      out += json[i];
      continue;
    }
    if (json[i + 1] != 'u') {
      out += json.substr(i++, 2);
      continue;
    }
    const unsigned long high = std::stoul(json.substr(i + 2, 4), nullptr, 16);
    if (high >= 0xd800 && high < 0xdc00) {
      const unsigned long low = std::stoul(json.substr(i + 8, 4), nullptr, 16);
      out += fmt::format("\\U{:08x}", 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
      i += 11;
    } else {
      out += json.substr(i, 6);
      i += 5;
    }
  }
  return out;
}

std::string scalar(const Json& value) {
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  return is_plain_scalar(text) ? text : in_quotes(text);
}

std::string key(const std::string& text) { return is_plain_scalar(text) ? text : in_quotes(text); }

class Writer {
 public:
  // `value` begins on the line that stands already, or on the next ones, `indent` to the right.
  void write(const Json& value, size_t indent) {
    if (value.is_object() && !value.empty()) {
      out_ += '\n';
      members(value, indent, true);
    } else if (value.is_array() && !value.empty()) {
      out_ += '\n';
      for (const Json& item : value) this->item(item, indent);
    } else if (value.is_string() && is_block(value.get_ref<const std::string&>())) {
      block(value.get_ref<const std::string&>(), indent);
    } else {
      out_ += ' ' + scalar(value) + '\n';
    }
  }
  void members(const Json& object, size_t indent, bool indent_first) {
    bool first = !indent_first;
    for (const auto& [name, value] : object.items()) {
      if (!first) out_.append(indent, ' ');
      first = false;
      out_ += key(name) + ':';
      write(value, indent + 2);
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void item(const Json& item, size_t indent) {
    out_.append(indent, ' ');
    out_ += '-';
    if (item.is_object() && !item.empty()) {
      out_ += ' ';
      members(item, indent + 2, false);
    } else {
      write(item, indent + 2);
    }
  }
  void block(std::string_view text, size_t indent) {
    out_ += " |\n";
    while (!text.empty()) {
      const size_t end = text.find('\n');
      if (end > 0) out_.append(indent, ' ');
      out_ += text.substr(0, end + 1);
      text.remove_prefix(end + 1);
    }
  }
  std::string out_;
};

}  // namespace

std::string yaml_text(const Json& tree) {
  Writer writer;
  if (tree.is_object() && !tree.empty()) {
    writer.members(tree, 0, true);
  } else {
    writer.write(tree, 0);
  }
  return writer.take();
}

}  // namespace tandem::cluster
