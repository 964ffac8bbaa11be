#include "tandem/text/pattern.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/text/newer_unicode.h"

namespace tandem {
namespace {

// Matches in brackets, what is between them as it is.
std::string shown(const Pattern& pattern, std::string_view text) {
  std::string out;
  pattern.for_each_piece(text, [&](std::string_view piece, bool is_match) {
    out += is_match ? "[" + std::string(piece) + "]" : std::string(piece);
  });
  return out;
}

TEST(Pattern, FindsMatchesFromLeftToRight) {
  EXPECT_EQ(shown(Pattern::literal("ab"), "abababa"), "[ab][ab][ab]a");
  EXPECT_EQ(shown(Pattern::regex(R"(\p{L}+|\p{N})", "x"), "é12 日本"), "[é][1][2] [日本]");
  EXPECT_EQ(shown(Pattern::regex("a*", "x"), "baac"), "b[aa]c");  // an empty match is none
  EXPECT_EQ(shown(Pattern::regex("x", "x"), ""), "");
  EXPECT_EQ(Pattern::literal(" ").replace_all(" a b", "▁"), "▁a▁b");
}

TEST(Pattern, KnowsCharactersOfUnicode16) {
  EXPECT_EQ(shown(Pattern::regex(R"(\p{N})", "x"), "\U0001d2c6a"), "[\U0001d2c6]a");     // since 15
  EXPECT_EQ(shown(Pattern::regex(R"([^\p{L}])", "x"), "\U000139ad1"), "\U000139ad[1]");  // since 16
  EXPECT_EQ(shown(Pattern::regex(R"(\P{L})", "x"), "\U000139ad1"), "\U000139ad[1]");
}

TEST(Pattern, TakesForWhiteSpaceWhatUnicodeDoes) {
  EXPECT_EQ(shown(Pattern::regex(R"(\s+)", "x"), "a\u180e b\u3000"), "a\u180e[ ]b[\u3000]");
  EXPECT_EQ(shown(Pattern::regex(R"([^\s]+)", "x"), "a\u180e b"), "[a\u180e] [b]");
  EXPECT_EQ(shown(Pattern::regex(R"([\S]+)", "x"), "a\u180e b"), "[a\u180e] [b]");
  EXPECT_EQ(shown(Pattern::regex(R"(\s+(?!\S))", "x"), "a   b"), "a[  ] b");
}

TEST(Pattern, KeepsBracketsAndEscapesAsTheyAre) {
  EXPECT_EQ(with_newer_unicode(R"([]\]a]\[\\[^]x])"), R"([]\]a]\[\\[^]x])");
  EXPECT_EQ(with_newer_unicode(R"(\p{Han}\x{41}'s)"), R"(\p{Han}\x{41}'s)");
}

TEST(Pattern, SaysWhatIsNoExpression) {
  EXPECT_TRUE(message_of<DataError>([] {
                Pattern::regex("a(", "t.json");
              }).starts_with("t.json: 'a(' is no regular"));
}

}  // namespace
}  // namespace tandem
