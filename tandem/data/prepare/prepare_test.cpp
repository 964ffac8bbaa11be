#include "tandem/data/prepare/prepare.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/rng.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/data/token_windows.h"
#include "tandem/text/byte_level_test.h"
#include "tandem/text/tokenizer.h"

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
  const std::vector<std::string> inputs = {scratch.write("a.txt", text)};
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
  const std::vector<std::string> inputs = {scratch.write("a.txt", lines(20))};
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
  const std::vector<std::string> inputs = {scratch.write("a.txt", "one\n"), scratch.write("b.txt", "two\n"),
                                           scratch.write("c.txt", "three\n")};
  prepare_text(inputs, scratch.path() / "set", {.eval_fraction = 0.0});
  EXPECT_EQ(split_text(scratch.path() / "set", Split::Train), std::string("one\n\0two\n\0three\n", 16));
  const std::string message =
      message_of<DataError>([&] { open_prepared(scratch.path() / "set", Split::Eval, false); });
  EXPECT_NE(message.find("its eval split is empty"), std::string::npos);
}

TEST(Prepare, ReportsProgressUpToTheEnd) {
  const TemporaryDirectory scratch;
  const std::vector<std::string> inputs = {scratch.write("a.txt", std::string((3 << 20) + 5, 'x')),
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
  const std::string good = scratch.write("a.txt", lines(10));
  const std::string binary = scratch.write("b.txt", std::string("text\0more", 9));
  const std::vector<std::string> inputs = {good, binary};
  EXPECT_EQ(message_of<DataError>([&] { prepare_text(inputs, scratch.path() / "set", {}); }),
            binary +
                ": byte 0 at offset 4: expected text, found binary; name a text file, or remove such "
                "bytes: tr -d '\\0' < " +
                binary);
  const auto interrupt = [](int64_t, int64_t) { throw std::runtime_error("stop"); };
  EXPECT_THROW(prepare_text(std::span(&good, 1), scratch.path() / "set", {.progress = interrupt}),
               std::runtime_error);
  EXPECT_TRUE(holds_only(scratch.path(), {"a.txt", "b.txt"}));
}

TEST(Prepare, RefusesBadArguments) {
  const TemporaryDirectory scratch;
  const std::string file = scratch.write("a.txt", lines(10));
  const std::string empty = scratch.write("empty.txt", "");
  const std::string absent = scratch.path() / "absent.txt", nothing = scratch.path() / "no*.txt";
  const std::string bare = scratch.path() / "bare";
  fs::create_directory(bare);
  const fs::path out = scratch.path() / "set";
  EXPECT_THROW(prepare_text({}, out, {}), ConfigError);
  EXPECT_THROW(prepare_text(std::span(&absent, 1), out, {}), DataError);
  EXPECT_THROW(prepare_text(std::span(&empty, 1), out, {}), DataError);
  EXPECT_THROW(prepare_text(std::span(&nothing, 1), out, {}), DataError);
  EXPECT_THROW(prepare_text(std::span(&bare, 1), out, {}), DataError);
  EXPECT_THROW(prepare_text(std::span(&file, 1), scratch.path(), {}), ConfigError);
  EXPECT_THROW(prepare_text(std::span(&file, 1), out, {.eval_fraction = 1.0}), ConfigError);
  EXPECT_THROW(prepare_text(std::span(&file, 1), out, {.shard_tokens = 0}), ConfigError);
  EXPECT_THROW(prepare_text(std::span(&file, 1), out, {.tokenizer = "words"}), ConfigError);
  EXPECT_FALSE(fs::exists(out));
}

// Documents of every kind: lines that may be cut at, and long ones that may not.
std::string prose(size_t bytes, uint64_t seed) {
  const Rng rng(seed, hash_name("prose"));
  static const std::vector<std::string> kParts = {
      "hello", " hello",      "\n", "\nhello",       " ", "  ", "é", "7", "\r\n",
      "\n\n",  "Hello world", ", ", "<|endoftext|>", "\t"};
  std::string text;
  for (uint64_t i = 0; text.size() < bytes; ++i) text += kParts[rng.bits(i) % kParts.size()];
  return text;
}

std::vector<int32_t> split_tokens(const fs::path& directory, Split split) {
  const auto source = open_prepared(directory, split, true);
  std::vector<int32_t> tokens(static_cast<size_t>(source->num_tokens()));
  source->read(0, source->num_tokens(), tokens.data());
  return tokens;
}

std::vector<int64_t> split_documents(const fs::path& directory, Split split) {
  const auto source = open_prepared(directory, split, true);
  std::vector<int64_t> documents;
  source->documents(0, source->num_tokens(), documents);
  return documents;
}

std::map<std::string, std::string> files_of(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(directory))
    files[entry.path().filename()] = read_text(entry.path());
  return files;
}

TEST(Prepare, GivesTheTokensOfWholeDocuments) {
  const TemporaryDirectory scratch;
  scratch.write("tokenizer.json", byte_level_json());
  const auto tokenizer = make_tokenizer(scratch.path().string());
  const std::vector<std::string> texts = {prose(3 << 20, 1), "hello", prose(1 << 20, 2) + "\xff\xc3"};
  std::vector<std::string> inputs;
  std::vector<int32_t> expected;
  std::vector<int64_t> documents;
  for (const std::string& text : texts) {
    inputs.push_back(scratch.write(fmt::format("{}.txt", inputs.size()), text));
    if (!expected.empty()) expected.push_back(kEndOfText);
    documents.push_back(static_cast<int64_t>(expected.size()));
    tokenizer->encode(text, expected);
  }
  const fs::path out = scratch.path() / "set";
  const PrepareStats stats = prepare_text(
      inputs, out,
      {.tokenizer = scratch.path().string(), .shard_tokens = 100000, .eval_fraction = 0.0, .threads = 3});
  EXPECT_EQ(split_tokens(out, Split::Train), expected);
  EXPECT_EQ(split_documents(out, Split::Train), documents);
  EXPECT_EQ(stats.num_documents, 3);
  EXPECT_EQ(stats.num_replaced, 2);
  EXPECT_EQ(read_text(out / "tokenizer.json"), byte_level_json());
}

TEST(Prepare, ReadsJsonLinesPackedOrNot) {
  const TemporaryDirectory scratch;
  std::string lines;
  for (int i = 0; i < 100; ++i)
    lines += nlohmann::json{{"meta", {{"body", fmt::format("line {}\n", i)}}}, {"id", i}}.dump() + "\n";
  lines += "\n{\"meta\": {\"body\": \"\"}}";  // neither is a document
  const std::vector<std::string> inputs = {scratch.write("a.jsonl", lines)};
  const PrepareOptions options{.shard_tokens = 90, .eval_fraction = 0.1, .field = "meta.body", .threads = 2};
  const PrepareStats stats = prepare_text(inputs, scratch.path() / "plain", options);
  EXPECT_EQ(stats.num_documents, 100);
  std::string train, eval;
  for (int i = 0; i < 100; ++i) {
    std::string& text = i % 10 == 9 ? eval : train;
    if (!text.empty()) text += '\0';
    text += fmt::format("line {}\n", i);
  }
  EXPECT_EQ(split_text(scratch.path() / "plain", Split::Train), train);
  EXPECT_EQ(split_text(scratch.path() / "plain", Split::Eval), eval);
  EXPECT_EQ(split_documents(scratch.path() / "plain", Split::Eval).size(), 10u);
  for (const char* tool : {"gzip -c", "zstd -q -c"}) {
    if (std::system(fmt::format("command -v {} > /dev/null", std::string(tool).substr(0, 4)).c_str()) != 0)
      continue;
    const fs::path file = scratch.path() / "b.jsonl.packed";
    ASSERT_EQ(std::system(fmt::format("{0} {1} > {2} && mv {2} {3}", tool, inputs[0], file.string(),
                                      (scratch.path() / "b.jsonl.gz").string())
                              .c_str()),
              0);
    const std::vector<std::string> other = {(scratch.path() / "b.jsonl.gz").string()};
    prepare_text(other, scratch.path() / tool, options);
    EXPECT_EQ(split_text(scratch.path() / tool, Split::Train),
              split_text(scratch.path() / "plain", Split::Train));
    EXPECT_EQ(split_text(scratch.path() / tool, Split::Eval),
              split_text(scratch.path() / "plain", Split::Eval));
    const std::string whole = read_text(other[0]);
    const std::vector<std::string> cut = {scratch.write("cut.jsonl.gz", whole.substr(0, whole.size() - 9))};
    EXPECT_NE(
        message_of<DataError>([&] { prepare_text(cut, scratch.path() / "cut", options); }).find("cut off"),
        std::string::npos);
  }
}

TEST(Prepare, NamesTheLineThatIsWrong) {
  const TemporaryDirectory scratch;
  const auto refusal = [&](std::string_view lines, const PrepareOptions& options = {}) {
    const std::vector<std::string> inputs = {scratch.write("a.jsonl", lines)};
    const std::string message =
        message_of<DataError>([&] { prepare_text(inputs, scratch.path() / "set", options); });
    EXPECT_TRUE(holds_only(scratch.path(), {"a.jsonl"}));
    return message.substr(scratch.path().string().size() + 1);
  };
  EXPECT_EQ(refusal("{\"text\": \"a\"}\n\n{\"text\": 3}\n"),
            "a.jsonl:3: expected text in 'text', found number");
  EXPECT_TRUE(refusal("{\"text\": \"a\"}\n{\"text\": \"b\"\n").starts_with("a.jsonl:2: not valid JSON: "));
  EXPECT_EQ(refusal("{\"body\": \"a\", \"id\": 1}\n"),
            "a.jsonl:1: no field 'text' (it has body, id); name the one with the text: --field NAME");
  EXPECT_EQ(refusal("[1]\n"), "a.jsonl:1: expected an object with 'text', found array");
  EXPECT_TRUE(refusal("[\n{}]\n").starts_with("a.jsonl:1: a JSON array: expected an object on each line"));
  EXPECT_EQ(refusal("{\"text\": \"a\"}\n", {.field = "text.b"}),
            "a.jsonl:1: expected an object with 'text.b', found object");
  EXPECT_NE(refusal("{\"text\": \"a\\u0000\"}\n").find("a.jsonl:1: its text has a byte 0"),
            std::string::npos);
  EXPECT_NE(refusal("{\"text\": \"\"}\n").find("no text in 1 file"), std::string::npos);
}

TEST(Prepare, KeepsItsShareOfManyShortFilesForEvaluation) {
  const TemporaryDirectory scratch;
  fs::create_directory(scratch.path() / "in");
  for (int file = 0; file < 50; ++file)
    scratch.write(fmt::format("in/{}.jsonl", file),
                  "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n{\"text\": \"d\"}\n");
  const std::vector<std::string> inputs = {scratch.path() / "in"};
  prepare_text(inputs, scratch.path() / "set", {.eval_fraction = 0.05});
  EXPECT_NEAR(static_cast<double>(split_documents(scratch.path() / "set", Split::Eval).size()), 10, 1);
}

TEST(Prepare, SplitsTextOnWhatIsAskedFor) {
  const TemporaryDirectory scratch;
  const std::vector<std::string> inputs = {scratch.write("a.txt", "one\n\ntwo\n\n\nthree\n\n\n\nfour")};
  prepare_text(inputs, scratch.path() / "set", {.eval_fraction = 0.0, .split_on = "\n\n"});
  EXPECT_EQ(split_text(scratch.path() / "set", Split::Train), std::string("one\0two\0\nthree\0four", 19));
  EXPECT_EQ(split_documents(scratch.path() / "set", Split::Train), (std::vector<int64_t>{0, 4, 8, 15}));
  prepare_text(inputs, scratch.path() / "joined",
               {.eval_fraction = 0.0, .split_on = "\n\n", .separate = false});
  EXPECT_EQ(split_text(scratch.path() / "joined", Split::Train), "onetwo\nthreefour");
}

TEST(Prepare, TakesDirectoriesAndPatternsInOrder) {
  const TemporaryDirectory scratch;
  fs::create_directories(scratch.path() / "in" / "b" / ".hidden");
  for (const char* name : {"in/c.txt", "in/a.txt", "in/b/z.txt", "in/b/.hidden/x.txt", "in/.y.txt"})
    scratch.write(name, name);
  scratch.write("in/empty.txt", "");
  const std::vector<std::string> all = {scratch.path() / "in"}, some = {scratch.path() / "in" / "[ab].*"};
  prepare_text(all, scratch.path() / "all", {.eval_fraction = 0.0});
  EXPECT_EQ(split_text(scratch.path() / "all", Split::Train),
            std::string("in/a.txt\0in/b/z.txt\0in/c.txt", 28));
  prepare_text(some, scratch.path() / "some", {.eval_fraction = 0.0});
  EXPECT_EQ(split_text(scratch.path() / "some", Split::Train), "in/a.txt");
}

// A copy of what is there at some moment is what a process that is killed then leaves.
TEST(Prepare, GoesOnFromWhereItWasWithTheSameBytes) {
  const TemporaryDirectory scratch;
  scratch.write("tokenizer.json", byte_level_json());
  std::string lines;
  for (int i = 0; i < 3000; ++i)
    lines += nlohmann::json{{"text", prose(1000, static_cast<uint64_t>(i))}}.dump() + "\n";
  const std::vector<std::string> inputs = {scratch.write("a.txt", prose(5 << 20, 1)),
                                           scratch.write("b.jsonl", lines), scratch.write("c.txt", "hello")};
  PrepareOptions options{.tokenizer = scratch.path().string(), .shard_tokens = 70000, .threads = 1};
  options.save_every_s = 0;
  const fs::path partial = scratch.path() / "set.partial";
  int calls = 0;
  options.progress = [&](int64_t, int64_t) {
    if (++calls % 3 == 0)
      fs::copy(partial, scratch.path() / fmt::format("killed{}", calls), fs::copy_options::recursive);
  };
  prepare_text(inputs, scratch.path() / "set", options);
  const auto expected = files_of(scratch.path() / "set");
  EXPECT_GT(calls, 6);
  options.progress = {};
  std::string told;
  options.tell = [&](const std::string& message) { told = message; };
  for (int killed = 3; killed < calls; killed += 3) {
    fs::remove_all(scratch.path() / "set");
    fs::rename(scratch.path() / fmt::format("killed{}", killed), partial);
    options.threads = 1 + killed % 4;
    prepare_text(inputs, scratch.path() / "set", options);
    EXPECT_EQ(told.find("goes on from"), 0u) << told;
    EXPECT_TRUE(files_of(scratch.path() / "set") == expected) << killed;
    told.clear();
  }
}

TEST(Prepare, BeginsAnewWhereWhatWasSavedIsDamaged) {
  const TemporaryDirectory scratch;
  const std::vector<std::string> inputs = {scratch.write("a.txt", "hello")};
  std::string told;
  PrepareOptions options;
  options.tell = [&](const std::string& message) { told = message; };
  fs::create_directories(scratch.path() / "set.partial");
  scratch.write("set.partial/state", "{");
  EXPECT_EQ(prepare_text(inputs, scratch.path() / "set", options).num_documents, 2);
  EXPECT_NE(told.find("damaged: begins anew"), std::string::npos) << told;
}

TEST(Prepare, BeginsAnewWhereTheInputsAreOthers) {
  const TemporaryDirectory scratch;
  std::vector<std::string> inputs = {scratch.write("a.txt", prose(3 << 20, 1))};
  PrepareOptions options{.save_every_s = 0};
  options.progress = [&](int64_t done, int64_t total) {
    if (done > 0 && done < total && !fs::exists(scratch.path() / "killed"))
      fs::copy(scratch.path() / "set.partial", scratch.path() / "killed", fs::copy_options::recursive);
  };
  prepare_text(inputs, scratch.path() / "set", options);
  fs::remove_all(scratch.path() / "set");
  fs::rename(scratch.path() / "killed", scratch.path() / "set.partial");
  scratch.write("a.txt", "hello");
  std::string told;
  options.tell = [&](const std::string& message) { told = message; };
  EXPECT_EQ(prepare_text(inputs, scratch.path() / "set", options).num_documents, 2);
  EXPECT_NE(told.find("of other inputs or options: begins anew"), std::string::npos);
}

class DamagedSet : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<std::string> inputs = {scratch_.write("a.txt", lines(100))};
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
  for (int64_t offset = 0; offset < 112; ++offset) {
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
