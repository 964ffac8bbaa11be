#include "tandem/config/yaml_shape.h"

#include <gtest/gtest.h>

#include "tandem/config/rejection_test.h"

namespace tandem {
namespace {

std::string repeated(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

TEST(YamlShape, RefusesLongListsAndValues) {
  EXPECT_EQ(rejection("name: a\nmodel: {blocks: [" + repeated("1, ", 5000) + "1]}"),
            "run.yaml:2: expected lists of at most 1024 items, found more; shorten it");
  EXPECT_EQ(rejection("name: " + repeated("x", 5000)),
            "run.yaml:1: expected values of at most 4096 characters, found one of 5000; shorten it");
  EXPECT_EQ(rejection("", {{"data.train=" + repeated("x", 5000)}}),
            "--set data.train: expected at most 4096 characters, found 5000");
}

TEST(YamlShape, RefusesAFileThatIsNoConfig) {
  EXPECT_EQ(rejection("# " + repeated("x", 2 << 20)),
            "run.yaml: a config has at most 1.0 MiB, found 2.0 MiB; is it another file?");
  EXPECT_EQ(rejection(std::string("name: a\0b", 9)),
            "run.yaml: not a text file in UTF-8: expected a YAML config");
  EXPECT_EQ(rejection("name: caf\xe9"), "run.yaml: not a text file in UTF-8: expected a YAML config");
  EXPECT_EQ(rejection("", {{"data.train=caf\xe9"}}),
            "--set data.train: expected UTF-8 text, found 'caf\\xe9'; rename the file, or write it in UTF-8");
}

TEST(YamlShape, RefusesManyLevels) {
  for (const auto& [open, close] : {std::pair{"[", "]"}, std::pair{"{a: ", "}"}, std::pair{"- ", ""}}) {
    const std::string message = rejection(repeated(open, 200000 / 4) + "1" + repeated(close, 200000 / 4));
    EXPECT_EQ(
        message,
        "run.yaml:1: expected `key: value` pairs in sections, found many levels of lists or keys inside each "
        "other; write it flat");
  }
}

// Nine lists of nine of the one before: 400 million items, were they ever written out.
TEST(YamlShape, ExpandsNoAliases) {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'j'; ++c) {
    const std::string last(1, static_cast<char>(c - 1));
    bomb += std::string(1, c) + ": &" + c + " [*" + last + repeated(", *" + last, 8) + "]\n";
  }
  EXPECT_EQ(rejection(bomb), "run.yaml:1: a: no such key; `tandem explain CONFIG` shows every key");
  EXPECT_EQ(rejection("model: {blocks: &a [*a]}"), rejection("model: {blocks: [[[1]]]}"));
  EXPECT_EQ(rejection("train: {batch: &b 16, micro_batch: *b}"), "") << "aliases are fine otherwise";
}

TEST(YamlShape, ShowsLongThingsInPart) {
  const std::string message = rejection("", {{repeated("k", 100000) + "=3"}});
  EXPECT_LT(message.size(), 400u) << message.substr(0, 400);
  EXPECT_LT(rejection("", {{"train.steps=" + repeated("9", 4000)}}).size(), 400u);
}

}  // namespace
}  // namespace tandem
