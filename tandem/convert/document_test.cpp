#include "tandem/convert/document.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem::convert {
namespace {

TEST(Document, ReadsYamlAsItsReadersDo) {
  const Value root =
      parse_yaml("a: no\nb: 'no'\nc: 1e-5\nd: 3\ne: {f: [1, x]}\ng:\nh: 1e9\ni: nano\n", "f.yaml");
  EXPECT_EQ(
      Value::parse(R"({"a": false, "b": "no", "c": 1e-5, "d": 3, "e": {"f": [1, "x"]}, "g": null, "h": 1e9,
                             "i": "nano"})"),
      root);
}

TEST(Document, ReadsTomlTablesNumbersAndArrays) {
  const Value root = parse_toml("[a.b]\nx = 3e-4 # peak\ny = -1\nz = ['p', \"q\"]\nw = true\n", "f.toml");
  EXPECT_EQ(Value::parse(R"({"a": {"b": {"w": true, "x": 3e-4, "y": -1, "z": ["p", "q"]}}})"), root);
}

TEST(Document, NamesTheLineThatIsWrong) {
  EXPECT_TRUE(message_of<ConfigError>([] {
                parse_json("{\n\"a\": 1,\n}", "f.json");
              }).starts_with("f.json:3: not JSON"));
  EXPECT_TRUE(
      message_of<ConfigError>([] { parse_toml("[a]\nx = \n", "f.toml"); }).starts_with("f.toml:2: not TOML"));
  EXPECT_TRUE(message_of<ConfigError>([] { parse_yaml("a: 1\nb: [", "f.yaml"); }).starts_with("f.yaml:"));
}

TEST(Document, DoesNotUnfoldListsOfListsForEver) {
  std::string text = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 9; ++i) {
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) text += "*a" + std::to_string(i - 1) + ", ";
    text += "1]\n";
  }
  EXPECT_NE(message_of<ConfigError>([&] { parse_yaml(text, "f.yaml"); }).find("at most 100000 values"),
            std::string::npos);
}

TEST(Document, TakesTheLanguageFromTheName) {
  const TemporaryDirectory directory;
  write_atomically(directory.path() / "a.toml", "[a]\nb = 1\n");
  write_atomically(directory.path() / "a.yml", "a:\n  b: 1\n");
  write_atomically(directory.path() / "a.json", R"({"a": {"b": 1}})");
  write_atomically(directory.path() / "arguments", R"( {"a": {"b": 1}})");
  for (const char* name : {"a.toml", "a.yml", "a.json", "arguments"})
    EXPECT_EQ(1, read_document(directory.path() / name)["a"]["b"]) << name;
  write_atomically(directory.path() / "a.txt", "a: 1");
  EXPECT_THROW(read_document(directory.path() / "a.txt"), ConfigError);
  write_atomically(directory.path() / "list.json", "[1]");
  EXPECT_THROW(read_document(directory.path() / "list.json"), ConfigError);
  EXPECT_THROW(read_document(directory.path() / "absent.json"), ConfigError);
}

}  // namespace
}  // namespace tandem::convert
