#include "tandem/data/token_windows.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

struct Window {
  std::vector<int32_t> tokens, targets;
};

Window window_of(const Dataset& set, int64_t index) {
  const auto context = static_cast<size_t>(set.spec().context);
  Window window{std::vector<int32_t>(context, -9), std::vector<int32_t>(context, -9)};
  set.fill(index, {.tokens = window.tokens.data(), .targets = window.targets.data()});
  return window;
}

TEST(TokenWindows, MakeEveryTokenButTheFirstATargetOnce) {
  const TemporaryDirectory scratch;
  const std::string text = "the quick brown fox jumps over the lazy dog";
  const auto file = scratch.write("a.txt", text);
  for (int64_t context = 1; context < static_cast<int64_t>(text.size()); ++context) {
    const TokenWindows set("a.txt", open_text(file), context);
    std::string targets;
    int64_t num_valid = 0;
    for (int64_t i = 0; i < set.num_samples(); ++i) {
      const Window window = window_of(set, i);
      int64_t valid = 0;
      for (int64_t t = 0; t < context; ++t) {
        const int32_t target = window.targets[static_cast<size_t>(t)];
        if (target == kNoTarget) continue;
        EXPECT_EQ(window.tokens[static_cast<size_t>(t)], text[targets.size()]);
        targets += static_cast<char>(target);
        ++valid;
      }
      EXPECT_EQ(valid, set.num_valid_targets(i));
      num_valid += valid;
    }
    EXPECT_EQ(targets, text.substr(1)) << context;
    EXPECT_EQ(num_valid, static_cast<int64_t>(text.size()) - 1);
  }
}

TEST(TokenWindows, PadTheLastWindowWithoutTargets) {
  const TemporaryDirectory scratch;
  const TokenWindows set("a.txt", open_text(scratch.write("a.txt", "abcdef")), 4);
  ASSERT_EQ(set.num_samples(), 2);
  const Window last = window_of(set, 1);
  EXPECT_EQ(last.tokens, (std::vector<int32_t>{'e', 0, 0, 0}));
  EXPECT_EQ(last.targets, (std::vector<int32_t>{'f', kNoTarget, kNoTarget, kNoTarget}));
}

TEST(TokenWindows, PadNothingWhereTheLastWindowIsFull) {
  const TemporaryDirectory scratch;
  const TokenWindows set("a.txt", open_text(scratch.write("a.txt", "abcdefghi")), 4);
  EXPECT_EQ(set.num_samples(), 2);
  EXPECT_EQ(set.num_valid_targets(1), 4);
}

TEST(TokenWindows, RefuseTooFewTokensForOneWindow) {
  const TemporaryDirectory scratch;
  const auto file = scratch.write("a.txt", "abcd");
  EXPECT_EQ(message_of<DataError>([&] { TokenWindows("a.txt", open_text(file), 4); }),
            "a.txt: 4 tokens are too few: one window of model.context 4 takes 5; use a shorter context or "
            "more data");
  EXPECT_EQ(TokenWindows("a.txt", open_text(file), 3).num_samples(), 1);
}

}  // namespace
}  // namespace tandem
