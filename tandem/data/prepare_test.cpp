#include "tandem/data/prepare.h"

#include <gtest/gtest.h>

#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/data/token_windows.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::string split_text(const fs::path& directory, Split split) {
  const auto source = open_prepared(directory, split, true);
  std::vector<int32_t> tokens(static_cast<size_t>(source->num_tokens()));
  source->read(0, source->num_tokens(), tokens.data());
  return {tokens.begin(), tokens.end()};
}

std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "line " + std::to_string(i) + "\n";
  return text;
}

bool holds_only(const fs::path& directory, const std::vector<std::string>& names) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    count += 1;
    if (std::find(names.begin(), names.end(), entry.path().filename()) == names.end()) return false;
  }
  return count == names.size();
}

TEST(Prepare, KeepsEveryByteAndCutsAtALine) {
  const TemporaryDirectory scratch;
  const std::string text = lines(100);
  const std::vector<fs::path> inputs = {scratch.write("a.txt", text)};
  const PrepareStats stats =
      prepare_text(inputs, scratch.path() / "set", {.shard_tokens = 100, .eval_fraction = 0.1});
  const std::string train = split_text(scratch.path() / "set", Split::Train);
  const std::string eval = split_text(scratch.path() / "set", Split::Eval);
  EXPECT_EQ(train + eval, text);
  EXPECT_EQ(train.back(), '\n');
  EXPECT_NEAR(static_cast<double>(eval.size()), 0.1 * static_cast<double>(text.size()), 10.0);
  EXPECT_EQ(stats.num_files, 1);
  EXPECT_EQ(stats.input_bytes, static_cast<int64_t>(text.size()));
  EXPECT_EQ(stats.train_tokens, static_cast<int64_t>(train.size()));
  EXPECT_EQ(stats.eval_tokens, static_cast<int64_t>(eval.size()));
  EXPECT_EQ(stats.num_shards, static_cast<int64_t>((train.size() + 99) / 100 + (eval.size() + 99) / 100));
  EXPECT_TRUE(holds_only(scratch.path(), {"a.txt", "set"}));
}

TEST(Prepare, ReadsTheSameWhateverTheShardSize) {
  const TemporaryDirectory scratch;
  const std::vector<fs::path> inputs = {scratch.write("a.txt", lines(20))};
  for (const int64_t shard_tokens : {5, 64, 100000}) {
    const fs::path out = scratch.path() / ("set" + std::to_string(shard_tokens));
    prepare_text(inputs, out, {.shard_tokens = shard_tokens, .eval_fraction = 0.0});
    const auto source = open_prepared(out, Split::Train, false);
    for (int64_t first = 0; first + 13 <= source->num_tokens(); ++first) {
      int32_t tokens[13];
      source->read(first, 13, tokens);
      EXPECT_EQ(std::string(tokens, tokens + 13), lines(20).substr(static_cast<size_t>(first), 13));
    }
  }
}

TEST(Prepare, SeparatesDocuments) {
  const TemporaryDirectory scratch;
  const std::vector<fs::path> inputs = {scratch.write("a.txt", "one\n"), scratch.write("b.txt", "two\n"),
                                        scratch.write("c.txt", "three\n")};
  prepare_text(inputs, scratch.path() / "set", {.eval_fraction = 0.0});
  EXPECT_EQ(split_text(scratch.path() / "set", Split::Train), std::string("one\n\0two\n\0three\n", 16));
  const std::string message =
      message_of<DataError>([&] { open_prepared(scratch.path() / "set", Split::Eval, false); });
  EXPECT_NE(message.find("its eval split is empty"), std::string::npos);
}

TEST(Prepare, ReportsProgressUpToTheEnd) {
  const TemporaryDirectory scratch;
  const std::vector<fs::path> inputs = {scratch.write("a.txt", std::string((3 << 20) + 5, 'x')),
                                        scratch.write("b.txt", lines(10))};
  std::vector<int64_t> seen;
  int64_t total = 0;
  const PrepareStats stats =
      prepare_text(inputs, scratch.path() / "set", {.progress = [&](int64_t done, int64_t all) {
                     seen.push_back(done);
                     total = all;
                   }});
  EXPECT_GE(seen.size(), 4u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), total);
  EXPECT_EQ(total, stats.input_bytes);
}

TEST(Prepare, LeavesNothingBehindWhenItFails) {
  const TemporaryDirectory scratch;
  const auto good = scratch.write("a.txt", lines(10));
  const auto binary = scratch.write("b.txt", std::string("text\0more", 9));
  const std::vector<fs::path> inputs = {good, binary};
  EXPECT_EQ(message_of<DataError>([&] { prepare_text(inputs, scratch.path() / "set", {}); }),
            binary.string() +
                ": byte 0 at offset 4: expected text, found binary; name a text file, or remove such "
                "bytes: tr -d '\\0' < " +
                binary.string());
  const auto interrupt = [](int64_t, int64_t) { throw std::runtime_error("stop"); };
  EXPECT_THROW(prepare_text(std::span(&good, 1), scratch.path() / "set", {.progress = interrupt}),
               std::runtime_error);
  EXPECT_TRUE(holds_only(scratch.path(), {"a.txt", "b.txt"}));
}

TEST(Prepare, RefusesBadArguments) {
  const TemporaryDirectory scratch;
  const auto file = scratch.write("a.txt", lines(10));
  const auto empty = scratch.write("empty.txt", "");
  const fs::path absent = scratch.path() / "absent.txt", out = scratch.path() / "set";
  EXPECT_THROW(prepare_text({}, out, {}), ConfigError);
  EXPECT_THROW(prepare_text(std::span(&absent, 1), out, {}), DataError);
  EXPECT_THROW(prepare_text(std::span(&empty, 1), out, {}), DataError);
  EXPECT_THROW(prepare_text(std::span(&scratch.path(), 1), out, {}), DataError);
  EXPECT_THROW(prepare_text(std::span(&file, 1), scratch.path(), {}), ConfigError);
  EXPECT_THROW(prepare_text(std::span(&file, 1), out, {.eval_fraction = 1.0}), ConfigError);
  EXPECT_THROW(prepare_text(std::span(&file, 1), out, {.shard_tokens = 0}), ConfigError);
  EXPECT_THROW(prepare_text(std::span(&file, 1), out, {.tokenizer = "words"}), ConfigError);
  EXPECT_FALSE(fs::exists(out));
}

class DamagedSet : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<fs::path> inputs = {scratch_.write("a.txt", lines(100))};
    prepare_text(inputs, set_, {.shard_tokens = 300, .eval_fraction = 0.0});
  }
  std::string open_fails() {
    return message_of<DataError>([&] { open_prepared(set_, Split::Train, verify_); });
  }

  TemporaryDirectory scratch_;
  fs::path set_ = scratch_.path() / "set";
  fs::path shard_ = set_ / "train-00001.tokens";
  bool verify_ = false;
};

TEST_F(DamagedSet, TruncatedShardIsRefused) {
  fs::resize_file(shard_, 700);
  EXPECT_EQ(open_fails(),
            shard_.string() + ": truncated: expected 728 bytes, found 700; run tandem prepare again");
}

TEST_F(DamagedSet, MissingShardIsRefused) {
  fs::remove(shard_);
  EXPECT_EQ(open_fails(), shard_.string() + ": shard is missing; run tandem prepare again");
}

TEST_F(DamagedSet, FlippedTokenIsFoundOnRequest) {
  flip_byte(shard_, 200);
  EXPECT_NO_THROW(open_prepared(set_, Split::Train, false));
  verify_ = true;
  EXPECT_NE(open_fails().find("train-00001.tokens: tokens are damaged"), std::string::npos);
}

TEST_F(DamagedSet, EveryFlippedHeaderByteIsRefused) {
  for (int64_t offset = 0; offset < 72; ++offset) {
    flip_byte(shard_, offset);
    EXPECT_NE(open_fails().find("train-00001.tokens"), std::string::npos) << offset;
    flip_byte(shard_, offset);
  }
  EXPECT_NO_THROW(open_prepared(set_, Split::Train, true));
}

TEST_F(DamagedSet, ShardOfAnotherSetIsRefused) {
  fs::copy_file(set_ / "train-00000.tokens", shard_, fs::copy_options::overwrite_existing);
  EXPECT_NE(open_fails().find("header does not agree with"), std::string::npos);
}

TEST_F(DamagedSet, BrokenIndexIsRefused) {
  for (const char* index :
       {"", "{", "[]", "{\"format\": \"tandem-tokens\", \"version\": 1}", "{\"format\": 3}"}) {
    std::ofstream(set_ / "index.json") << index;
    EXPECT_NE(open_fails().find("index.json"), std::string::npos) << index;
  }
  fs::remove(set_ / "index.json");
  EXPECT_NE(open_fails().find("not a prepared set"), std::string::npos);
}

}  // namespace
}  // namespace tandem
