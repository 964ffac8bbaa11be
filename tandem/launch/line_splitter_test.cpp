#include "tandem/launch/line_splitter.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

using Lines = std::vector<std::string>;

Lines split(const std::vector<std::string>& pieces) {
  LineSplitter splitter;
  Lines lines;
  const auto keep = [&](std::string_view line) { lines.emplace_back(line); };
  for (const std::string& piece : pieces) splitter.feed(piece, keep);
  splitter.finish(keep);
  return lines;
}

TEST(LineSplitter, GivesWholeLinesHoweverTheBytesArrive) {
  const Lines expected = {"one", "", "two three", "end"};
  EXPECT_EQ(expected, split({"one\n\ntwo three\nend"}));
  EXPECT_EQ(expected, split({"o", "ne", "\n", "\ntwo ", "three\nen", "d"}));
  EXPECT_EQ((Lines{}), split({""}));
}

TEST(LineSplitter, ARedrawnLineComesOutAsItLastStood) {
  EXPECT_EQ((Lines{"step 3", "done"}), split({"\rstep 1", "\rstep 2\rstep", " 3\ndone\n"}));
  EXPECT_EQ((Lines{"message"}), split({"\rstep 1\x1b[K", "\r\x1b[Kmessage\n"}));
}

TEST(LineSplitter, ACarriageReturnBeforeANewlineBelongsToIt) {
  EXPECT_EQ((Lines{"one", "two"}), split({"one\r", "\ntwo\r\n"}));
}

TEST(LineSplitter, AnEndlessLineIsCut) {
  const Lines lines = split({std::string(200000, 'x')});
  ASSERT_EQ(4u, lines.size());
  size_t total = 0;
  for (const std::string& line : lines) total += line.size();
  EXPECT_EQ(200000u, total);
}

}  // namespace
}  // namespace tandem
