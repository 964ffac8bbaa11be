// A look at a YAML text before a tree of it is built: yaml-cpp takes 200 bytes of memory for each of the
// text, and its documents may have no end.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace tandem {

// Far above what a config needs, and low enough that no text takes long to refuse.
inline constexpr size_t kMaxConfigBytes = 1 << 20;
inline constexpr size_t kMaxListItems = 1024;
inline constexpr size_t kMaxValueBytes = 4096;  // as long as a path may be

struct YamlFault {
  int line;  // counted from 1
  std::string what;
  bool is_second_document = false;
};

// The first thing that a config has not: a second document, lists in lists in lists, or a list or value that
// is too long. Throws YAML::Exception where the text is no YAML.
std::optional<YamlFault> find_yaml_fault(const std::string& text, size_t max_items = kMaxListItems);

}  // namespace tandem
