#include "tandem/text/newer_unicode.h"

#include <fmt/format.h>

namespace tandem {
namespace {

constexpr NewerCharacters kAdditions[] = {
    {"Lu", 0x1c89, 0x1c89},   {"Lu", 0xa7cb, 0xa7cc},   {"Lu", 0xa7da, 0xa7da},   {"Lu", 0xa7dc, 0xa7dc},
    {"Lu", 0x10d50, 0x10d65}, {"Ll", 0x1c8a, 0x1c8a},   {"Ll", 0xa7cd, 0xa7cd},   {"Ll", 0xa7db, 0xa7db},
    {"Ll", 0x10d70, 0x10d85}, {"Ll", 0x1df25, 0x1df2a}, {"Lm", 0x10d4e, 0x10d4e}, {"Lm", 0x10d6f, 0x10d6f},
    {"Lm", 0x16d40, 0x16d42}, {"Lm", 0x16d6b, 0x16d6c}, {"Lm", 0x1e030, 0x1e06d}, {"Lm", 0x1e4eb, 0x1e4eb},
    {"Lo", 0x105c0, 0x105f3}, {"Lo", 0x10d4a, 0x10d4d}, {"Lo", 0x10d4f, 0x10d4f}, {"Lo", 0x10ec2, 0x10ec4},
    {"Lo", 0x1123f, 0x11240}, {"Lo", 0x11380, 0x11389}, {"Lo", 0x1138b, 0x1138b}, {"Lo", 0x1138e, 0x1138e},
    {"Lo", 0x11390, 0x113b5}, {"Lo", 0x113b7, 0x113b7}, {"Lo", 0x113d1, 0x113d1}, {"Lo", 0x113d3, 0x113d3},
    {"Lo", 0x11bc0, 0x11be0}, {"Lo", 0x11f02, 0x11f02}, {"Lo", 0x11f04, 0x11f10}, {"Lo", 0x11f12, 0x11f33},
    {"Lo", 0x1342f, 0x1342f}, {"Lo", 0x13441, 0x13446}, {"Lo", 0x13460, 0x143fa}, {"Lo", 0x16100, 0x1611d},
    {"Lo", 0x16d43, 0x16d6a}, {"Lo", 0x18cff, 0x18cff}, {"Lo", 0x1b132, 0x1b132}, {"Lo", 0x1b155, 0x1b155},
    {"Lo", 0x1e4d0, 0x1e4ea}, {"Lo", 0x1e5d0, 0x1e5ed}, {"Lo", 0x1e5f0, 0x1e5f0}, {"Lo", 0x2b739, 0x2b739},
    {"Lo", 0x2ebf0, 0x2ee5d}, {"Lo", 0x31350, 0x323af}, {"M", 0x897, 0x897},      {"M", 0xcf3, 0xcf3},
    {"M", 0xece, 0xece},      {"M", 0x10d69, 0x10d6d},  {"M", 0x10efc, 0x10eff},  {"M", 0x11241, 0x11241},
    {"M", 0x113b8, 0x113c0},  {"M", 0x113c2, 0x113c2},  {"M", 0x113c5, 0x113c5},  {"M", 0x113c7, 0x113ca},
    {"M", 0x113cc, 0x113d0},  {"M", 0x113d2, 0x113d2},  {"M", 0x113e1, 0x113e2},  {"M", 0x11f00, 0x11f01},
    {"M", 0x11f03, 0x11f03},  {"M", 0x11f34, 0x11f3a},  {"M", 0x11f3e, 0x11f42},  {"M", 0x11f5a, 0x11f5a},
    {"M", 0x13440, 0x13440},  {"M", 0x13447, 0x13455},  {"M", 0x1611e, 0x1612f},  {"M", 0x1e08f, 0x1e08f},
    {"M", 0x1e4ec, 0x1e4ef},  {"M", 0x1e5ee, 0x1e5ef},  {"Nd", 0x10d40, 0x10d49}, {"Nd", 0x116d0, 0x116e3},
    {"Nd", 0x11bf0, 0x11bf9}, {"Nd", 0x11f50, 0x11f59}, {"Nd", 0x16130, 0x16139}, {"Nd", 0x16d70, 0x16d79},
    {"Nd", 0x1ccf0, 0x1ccf9}, {"Nd", 0x1e4f0, 0x1e4f9}, {"Nd", 0x1e5f1, 0x1e5fa}, {"No", 0x1d2c0, 0x1d2d3},
    {"P", 0x1b4e, 0x1b4f},    {"P", 0x1b7f, 0x1b7f},    {"P", 0x10d6e, 0x10d6e},  {"P", 0x113d4, 0x113d5},
    {"P", 0x113d7, 0x113d8},  {"P", 0x11b00, 0x11b09},  {"P", 0x11be1, 0x11be1},  {"P", 0x11f43, 0x11f4f},
    {"P", 0x16d6d, 0x16d6f},  {"P", 0x1e5ff, 0x1e5ff},  {"S", 0x2427, 0x2429},    {"S", 0x2ffc, 0x2fff},
    {"S", 0x31e4, 0x31e5},    {"S", 0x31ef, 0x31ef},    {"S", 0x10d8e, 0x10d8f},  {"S", 0x1cc00, 0x1ccef},
    {"S", 0x1cd00, 0x1ceb3},  {"S", 0x1f6dc, 0x1f6dc},  {"S", 0x1f774, 0x1f776},  {"S", 0x1f77b, 0x1f77f},
    {"S", 0x1f7d9, 0x1f7d9},  {"S", 0x1f8b2, 0x1f8bb},  {"S", 0x1f8c0, 0x1f8c1},  {"S", 0x1fa75, 0x1fa77},
    {"S", 0x1fa87, 0x1fa89},  {"S", 0x1fa8f, 0x1fa8f},  {"S", 0x1faad, 0x1faaf},  {"S", 0x1fabb, 0x1fabf},
    {"S", 0x1fac6, 0x1fac6},  {"S", 0x1face, 0x1facf},  {"S", 0x1fada, 0x1fadc},  {"S", 0x1fadf, 0x1fadf},
    {"S", 0x1fae8, 0x1fae9},  {"S", 0x1faf7, 0x1faf8},  {"S", 0x1fbcb, 0x1fbef},
};

// White_Space, which PCRE2 takes for a little more.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kOtherThanSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

// As they stand inside of brackets.
std::string additions_to(std::string_view category) {
  std::string ranges;
  for (const NewerCharacters& addition : kAdditions) {
    const bool belongs = addition.category.starts_with(category) || category.starts_with(addition.category);
    if (belongs) ranges += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", addition.first, addition.last);
  }
  return ranges;
}

class Translation {
 public:
  explicit Translation(std::string_view expression) : rest_(expression) {}

  std::string run() {
    while (!rest_.empty()) {
      if (rest_[0] == '\\' && rest_.size() > 1) {
        escape();
        continue;
      }
      if (rest_[0] == '[' && !in_brackets_) {
        in_brackets_ = true;
        take(rest_.starts_with("[^") ? 2 : 1);
        if (rest_.starts_with("]")) take(1);  // at the front it stands for itself
        continue;
      }
      if (rest_[0] == ']') in_brackets_ = false;
      take(1);
    }
    return made_;
  }

 private:
  void take(size_t bytes) {
    made_ += rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
  }
  // A set of characters, in brackets of its own or among those that are open.
  void put(std::string_view set, bool negated = false) {
    made_ += in_brackets_ ? std::string(set) : fmt::format("[{}{}]", negated ? "^" : "", set);
  }

  void escape() {
    const char kind = rest_[1];
    if (kind == 's' || kind == 'S') {
      rest_.remove_prefix(2);
      put(kind == 's' ? kSpaces : kOtherThanSpaces);
    } else if (kind == 'd') {
      rest_.remove_prefix(2);
      put("\\p{Nd}" + additions_to("Nd"));
    } else if ((kind == 'p' || (kind == 'P' && !in_brackets_)) && rest_.size() > 2 && rest_[2] == '{') {
      property(kind == 'P');
    } else {
      take(2);
    }
  }

  void property(bool negated) {
    const size_t end = rest_.find('}');
    if (end == std::string_view::npos) return take(2);
    const std::string_view name = rest_.substr(3, end - 3);
    const std::string added = name.empty() || name.size() > 2 ? "" : additions_to(name);
    if (added.empty()) return take(end + 1);
    put(fmt::format("\\p{{{}}}{}", name, added), negated);
    rest_.remove_prefix(end + 1);
  }

  std::string_view rest_;
  std::string made_;
  bool in_brackets_ = false;
};

}  // namespace

std::span<const NewerCharacters> newer_characters() { return kAdditions; }

std::string with_newer_unicode(std::string_view expression) { return Translation(expression).run(); }

}  // namespace tandem
