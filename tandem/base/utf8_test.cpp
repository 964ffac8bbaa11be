#include "tandem/base/utf8.h"

#include <gtest/gtest.h>

#include <utility>

namespace tandem {
namespace {

TEST(Utf8, TellsTextFromOtherBytes) {
  for (const char* text :
       {"", "plain", "caf\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\xb2", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(is_utf8(text)) << text;
  for (const char* text : {"caf\xe9", "\x80", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                           "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff"})
    EXPECT_FALSE(is_utf8(text)) << printable(text);
}

TEST(Utf8, TellsHowMuchOfTheFirstCharacterIsThere) {
  const auto first = [](std::string_view text) {
    const FirstCharacter found = first_character(text);
    return std::pair(found.bytes, found.whole);
  };
  EXPECT_EQ(first("ab"), std::pair(size_t{1}, true));
  EXPECT_EQ(first("\xe2\x82\xac"
                  "a"),
            std::pair(size_t{3}, true));
  EXPECT_EQ(first("\xe2\x82"
                  "a"),
            std::pair(size_t{2}, false));
  EXPECT_EQ(first("\xf0\x9f\x9a"), std::pair(size_t{3}, false));
  EXPECT_EQ(first("\xed\xa0\x80"), std::pair(size_t{1}, false));  // half of a surrogate pair
  EXPECT_EQ(first("\x80"), std::pair(size_t{1}, false));
}

TEST(Utf8, ShowsEveryByteOnOneLine) {
  EXPECT_EQ(printable("caf\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(printable("caf\xe9\n\x1b[1m"), "caf\\xe9\\n\\x1b[1m");
}

}  // namespace
}  // namespace tandem
