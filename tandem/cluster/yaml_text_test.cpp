#include "tandem/cluster/yaml_text.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"

namespace tandem::cluster {
namespace {

using Json = nlohmann::ordered_json;

TEST(YamlText, EveryTextComesBackAsItIs) {
  std::string all;
  for (int c = 1; c < 128; ++c) all += static_cast<char>(c);
  for (const std::string& text : {std::string("plain"),
                                  std::string(),
                                  std::string("true"),
                                  std::string("No"),
                                  std::string("1e3"),
                                  std::string("0x1"),
                                  std::string("~"),
                                  std::string("- a"),
                                  std::string("a: b"),
                                  std::string("a #b"),
                                  std::string("*x"),
                                  std::string("it's \"$(x)\" \\"),
                                  std::string("two\nlines\n"),
                                  std::string("two\n  lines\n\nmore\n"),
                                  std::string("  indented\nfirst\n"),
                                  std::string("ends\n\n"),
                                  std::string("no end\nhere"),
                                  std::string("\n"),
                                  std::string("blank \nat the end\n"),
                                  std::string("tab\there\n"),
                                  std::string("---\nfoo: bar\n...\n"),
                                  std::string("\r\n"),
                                  std::string("\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80\xc2\x85"),
                                  all}) {
    const YAML::Node read = YAML::Load(
        yaml_text(Json{{"outer", {{"text", text}, {"list", {text, {{"a", text}}}}}}, {text + "k", 1}}));
    EXPECT_EQ(text, read["outer"]["text"].as<std::string>());
    EXPECT_EQ(text, read["outer"]["list"][0].as<std::string>());
    EXPECT_EQ(text, read["outer"]["list"][1]["a"].as<std::string>());
    EXPECT_EQ(1, read[text + "k"].as<int>());
  }
}

TEST(YamlText, IsWrittenAsAPersonWould) {
  const Json tree = {{"kind", "Job"},
                     {"spec", {{"count", 2}, {"ready", true}, {"none", Json::object()}, {"quantity", "1"}}},
                     {"words", {"a", "b c"}},
                     {"items", Json::array({Json{{"name", "x"}, {"inner", {{"z", 1}}}}})},
                     {"script", "echo a\n  echo b\n"}};
  EXPECT_EQ(
      "kind: Job\nspec:\n  count: 2\n  ready: true\n  none: {}\n  quantity: \"1\"\nwords:\n  - a\n  - \"b "
      "c\"\n"
      "items:\n  - name: x\n    inner:\n      z: 1\nscript: |\n  echo a\n    echo b\n",
      yaml_text(tree));
}

TEST(YamlText, WhatIsNoUtf8IsRefused) { EXPECT_THROW(yaml_text(Json{{"a", "\xff"}}), ConfigError); }

}  // namespace
}  // namespace tandem::cluster
