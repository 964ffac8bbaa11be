// What becomes of each key of a format is one row of a table. Every key of a file meets a row or is told, so
// that none is passed over in silence.
#pragma once

#include <span>
#include <string_view>

#include "tandem/convert/draft.h"
#include "tandem/convert/source.h"

namespace tandem::convert {

enum class RuleKind {
  Same,  // the number, word or flag is that of our key
  Read,  // the format's code reads it
  Lost,  // nothing of ours stands for it
};

struct Rule {
  RuleKind kind;
  std::string_view key;        // theirs; of a table, all below it that has no row of its own
  std::string_view ours = "";  // Same
  std::string_view unless =
      "";  // JSON. Same: what the other program takes where it is absent; Lost: as good as absent
  std::string_view why = "";  // Lost: the reason, or what to do instead
};

constexpr Rule same(std::string_view key, std::string_view ours, std::string_view absent = "") {
  return {RuleKind::Same, key, ours, absent};
}
constexpr Rule read(std::string_view key) { return {RuleKind::Read, key}; }
constexpr Rule lost(std::string_view key, std::string_view why, std::string_view unless = "") {
  return {RuleKind::Lost, key, "", unless, why};
}

void apply_rules(const Source& source, std::span<const Rule> rules, Draft& draft);

}  // namespace tandem::convert
