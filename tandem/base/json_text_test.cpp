#include "tandem/base/json_text.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem {
namespace {

std::string nested(int depth) { return std::string(static_cast<size_t>(depth), '['); }

TEST(JsonText, DeepNestingIsRefusedBeforeItIsParsed) {
  EXPECT_NO_THROW(check_json_depth(nested(kMostJsonDepth), "file"));
  try {
    check_json_depth("{\"a\":" + nested(kMostJsonDepth), "file");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("file: expected JSON nested at most 64 deep", 0), 0u)
        << error.what();
  }
}

TEST(JsonText, OnlyWhatIsOpenAtATimeCounts) {
  std::string wide = "[";
  for (int i = 0; i < 1000; ++i) wide += "{\"a\":[1]},";
  EXPECT_NO_THROW(check_json_depth(wide, "file"));
}

TEST(JsonText, BracketsInStringsDoNotCount) {
  EXPECT_NO_THROW(check_json_depth("\"\\\"" + nested(1000) + "\"", "file"));
  EXPECT_NO_THROW(check_json_depth("\"\\\\\", \"" + nested(1000) + "\"", "file"));
  EXPECT_THROW(check_json_depth("\"\\\\\"" + nested(1000), "file"), DataError);
}

}  // namespace
}  // namespace tandem
