#include "tandem/data/token_windows.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/data/loader.h"
#include "tandem/data/prepare/prepare.h"

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

// Documents of bytes with a separator between them, which belongs to the one before it.
TEST(TokenWindows, KnowWhichDocumentATokenIsOf) {
  const TemporaryDirectory scratch;
  const std::vector<std::string> inputs = {scratch.write("a.txt", "one|three|four|fives|x")};
  prepare_text(inputs, scratch.path() / "set",
               {.shard_tokens = 9, .eval_fraction = 0.0, .split_on = "|", .threads = 1});
  const TokenWindows set("set", open_prepared(scratch.path() / "set", Split::Train, true), 8,
                         /*separate_documents=*/true);
  EXPECT_TRUE(set.knows_documents());
  alignas(Loader::kAlignment) std::byte memory[4096];
  const LoaderOptions options{.pass = Pass::Once, .global_batch = 4, .micro_batch = 4};
  ASSERT_LE(loader_bytes(set.spec(), options), static_cast<int64_t>(sizeof(memory)));
  Loader loader(set, options, memory);
  const MicroBatch batch = loader.next();
  const std::string text(batch.tokens, batch.tokens + 32);
  EXPECT_EQ(text.substr(0, 21), std::string("one\0three\0four\0fives\0", 21));
  const auto row = [](const int32_t* values, int number) {
    return std::vector<int32_t>(values + 8 * number, values + 8 * number + 8);
  };
  using Row = std::vector<int32_t>;
  EXPECT_EQ(row(batch.segments, 0), (Row{0, 0, 0, 0, 1, 1, 1, 1}));  // one_thre
  EXPECT_EQ(row(batch.positions, 0), (Row{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(row(batch.segments, 1), (Row{0, 0, 1, 1, 1, 1, 1, 2}));  // e_four_f
  EXPECT_EQ(row(batch.positions, 1), (Row{0, 1, 0, 1, 2, 3, 4, 0}));
  EXPECT_EQ(row(batch.segments, 2), (Row{0, 0, 0, 0, 0, 0, 0, 0}));   // ives_ and, as a target alone, x
  EXPECT_EQ(row(batch.positions, 3), (Row{0, 1, 2, 3, 4, 5, 6, 7}));  // padding
  // The separator is a target; the first token of a document, in this window or the next, is none.
  EXPECT_EQ(row(batch.targets, 0), (Row{'n', 'e', 0, -1, 'h', 'r', 'e', 'e'}));
  EXPECT_EQ(row(batch.targets, 1), (Row{0, -1, 'o', 'u', 'r', 0, -1, 'i'}));
  EXPECT_EQ(row(batch.targets, 2), (Row{'v', 'e', 's', 0, -1, -1, -1, -1}));
  EXPECT_EQ(set.num_valid_targets(0), 7);
  EXPECT_EQ(set.num_valid_targets(1), 6);
  EXPECT_EQ(set.num_valid_targets(2), 4);
  EXPECT_EQ(batch.num_valid_targets, 17);
}

TEST(TokenWindows, OfATextThatIsOneDocumentAreOneSegment) {
  const TemporaryDirectory scratch;
  const TokenWindows set("a.txt", open_text(scratch.write("a.txt", "the quick brown fox")), 8, true);
  EXPECT_FALSE(set.knows_documents());
  alignas(Loader::kAlignment) std::byte memory[1024];
  Loader loader(set, {.global_batch = 1}, memory);
  const MicroBatch batch = loader.next();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(batch.segments[i], 0);
    EXPECT_EQ(batch.positions[i], i);
  }
  const TokenWindows joined("a.txt", open_text(scratch.path() / "a.txt"), 8);
  Loader without(joined, {.global_batch = 1}, memory);
  EXPECT_EQ(without.next().segments, nullptr);
}

}  // namespace
}  // namespace tandem
