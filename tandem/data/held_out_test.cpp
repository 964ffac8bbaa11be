#include "tandem/data/held_out.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/data/open_dataset.h"
#include "tandem/data/prepare/prepare.h"

namespace tandem {
namespace {

std::string all_tokens(const TokenSource& source) {
  std::vector<int32_t> tokens(static_cast<size_t>(source.num_tokens()));
  source.read(0, source.num_tokens(), tokens.data());
  return {tokens.begin(), tokens.end()};
}

// Lines of some length, the last one without an end.
std::string lines(uint64_t seed, size_t size) {
  const Rng rng(seed, 1);
  std::string text;
  for (uint64_t i = 0; i < size; ++i)
    text += rng.bits(i) % 30 == 0 ? '\n' : static_cast<char>('a' + rng.bits(i) % 26);
  return text + "z";
}

TEST(HeldOut, TheTwoPartsOfATextAreThoseThatPrepareMakes) {
  const TemporaryDirectory scratch;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::string text = lines(seed, 2000 + 37 * seed);
    const auto file = scratch.write("a.txt", text);
    const auto prepared = scratch.path() / std::to_string(seed);
    const std::string name = file.string();
    prepare_text(std::span(&name, 1), prepared, {});
    const auto train = open_part(file, Split::Train, 16), eval = open_part(file, Split::Eval, 16);
    EXPECT_EQ(all_tokens(*train) + all_tokens(*eval), text);
    EXPECT_EQ(all_tokens(*train), all_tokens(*open_prepared(prepared, Split::Train, false)));
    EXPECT_EQ(all_tokens(*eval), all_tokens(*open_prepared(prepared, Split::Eval, false)));
    EXPECT_GT(eval->num_tokens(), 16);
  }
}

TEST(HeldOut, AShortTextKeepsAWindowApartAndATooShortOneIsRefused) {
  const TemporaryDirectory scratch;
  const auto file = scratch.write("a.txt", std::string(100, 'x'));
  EXPECT_EQ(open_part(file, Split::Train, 16)->num_tokens(), 83);
  EXPECT_EQ(open_part(file, Split::Eval, 16)->num_tokens(), 17);
  EXPECT_EQ(open_part(file, Split::Train, 49)->num_tokens(), 50);
  try {
    open_part(file, Split::Train, 50);
    ADD_FAILURE() << "was taken";
  } catch (const DataError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with(file.string() + ": 100 tokens are too few"))
        << error.what();
  }
}

TEST(HeldOut, TheEndIsKeptApartOnlyWhereAsked) {
  const TemporaryDirectory scratch;
  const auto file = scratch.write("a.txt", std::string(1000, 'x'));
  DatasetOptions options{.context = 10};
  EXPECT_EQ(open_dataset(file.string(), Split::Train, options)->num_samples(), 100);
  options.keep_end_apart = true;
  EXPECT_EQ(open_dataset(file.string(), Split::Train, options)->num_samples(), 95);
  EXPECT_EQ(open_dataset(file.string(), Split::Eval, options)->num_samples(), 5);
}

}  // namespace
}  // namespace tandem
