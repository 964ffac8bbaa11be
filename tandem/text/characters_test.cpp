#include "tandem/text/characters.h"

#include <gtest/gtest.h>

#include "tandem/text/normalizer.h"

#include "tandem/base/utf8.h"
#include "tandem/text/byte_alphabet.h"

namespace tandem {
namespace {

TEST(Characters, ComeAsTheyWent) {
  for (uint32_t character = 0; character < 0x110000; character += 17) {
    if (character >= 0xd800 && character < 0xe000) continue;
    std::string text;
    append_character(character, text);
    ASSERT_TRUE(is_utf8(text));
    ASSERT_EQ(character_bytes(text[0]), text.size());
    std::string_view rest = text;
    ASSERT_EQ(take_character(rest), character);
    ASSERT_TRUE(rest.empty());
  }
}

TEST(ValidText, ReplacesWhatIsNoCharacter) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(valid_text("h\xc3\xa9"), "h\xc3\xa9");
  EXPECT_EQ(valid_text("\xff\xfe"), r + r);
  EXPECT_EQ(valid_text("a\xe2\x96z"), "a" + r + "z");  // the beginning of one is one
  EXPECT_EQ(valid_text("\xe2\x96"), r);                // at the end too
  EXPECT_EQ(valid_text("\xed\xa0\x80"), r + r + r);    // half of a surrogate pair
  EXPECT_EQ(valid_text("\xc0\x80\xf5"), r + r + r);    // longer than needed; beyond the last
  EXPECT_EQ(valid_text("\xf0\x9f\x98\xf0\x9f\x98\x80"), r + "\xf0\x9f\x98\x80");
}

TEST(ByteAlphabet, HasACharacterForEachByte) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(bytes_of_piece(piece_of_bytes(all)), all);
  EXPECT_EQ(piece_of_bytes(" a\n"), "Ġa\u010a");
  EXPECT_EQ(bytes_of_piece("▁a"), std::nullopt);
}

TEST(WhiteSpace, IsUnicodes) {
  for (uint32_t c : {0x9u, 0x20u, 0x85u, 0xa0u, 0x2003u, 0x3000u}) EXPECT_TRUE(is_white_space(c));
  for (uint32_t c : {0x8u, 0x1cu, 0x180eu, 0x200bu, 0xfeffu}) EXPECT_FALSE(is_white_space(c));
}

// Cut or not: what stands before and after plain letters is the same.
TEST(UnicodeForm, IsTheSameInPartsAsInOne) {
  EXPECT_EQ(in_unicode_form("ae\u0301z", UnicodeForm::Nfc), "aéz");
  EXPECT_EQ(in_unicode_form("e\u0301e\u0327\u0301 plain", UnicodeForm::Nfc), "é\u0229\u0301 plain");
  EXPECT_EQ(in_unicode_form("plain é", UnicodeForm::Nfd), "plain e\u0301");
  EXPECT_EQ(in_unicode_form("\u1100\u1161\u11a8x\u0338", UnicodeForm::Nfc), "각x\u0338");
  EXPECT_EQ(in_unicode_form("<\u0338 =\u0338", UnicodeForm::Nfc), "\u226e \u2260");
  EXPECT_EQ(in_unicode_form("ﬁne", UnicodeForm::Nfkc), "fine");
  EXPECT_EQ(in_unicode_form("\uc838\u11a7\u1100\u1161\u11a7\u11a8", UnicodeForm::Nfc),
            "\uc838\u11a7가\u11a7\u11a8");
  EXPECT_EQ(in_unicode_form("", UnicodeForm::Nfc), "");
}

}  // namespace
}  // namespace tandem
