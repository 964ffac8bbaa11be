#include "tandem/base/clipped.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Clipped, ALineOfOrdinaryLengthStaysAsItIs) {
  EXPECT_EQ(clipped(""), "");
  const std::string line(kMostLineBytes, 'x');
  EXPECT_EQ(clipped(line), line);
}

TEST(Clipped, ALongOneKeepsItsBeginningAndItsEnd) {
  const std::string line = "file: expected 1, found " + std::string(1 << 20, 'x') + "; read it again";
  const std::string short_one = clipped(line);
  EXPECT_LE(short_one.size(), kMostLineBytes);
  EXPECT_TRUE(short_one.starts_with("file: expected 1, found xxx")) << short_one;
  EXPECT_TRUE(short_one.ends_with("xxx; read it again")) << short_one;
  EXPECT_NE(short_one.find("[... 1046"), std::string::npos) << short_one;
}

TEST(Clipped, NoCharacterIsCutInTwo) {
  for (size_t shift = 0; shift < 4; ++shift) {
    std::string line(shift, 'x');
    while (line.size() < 3 * kMostLineBytes) line += "\xf0\x9f\x90\x8e";
    const std::string cut = clipped(line);
    const size_t note = cut.find(" [... ");
    EXPECT_EQ((note - shift) % 4, 0u);
    EXPECT_EQ(cut[cut.find(" ...] ") + 6], '\xf0') << shift;
  }
}

}  // namespace
}  // namespace tandem
