#include "tandem/config/keys.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem {
namespace {

TEST(Keys, HaveUniquePathsAndADocLineEach) {
  std::set<std::string_view> seen;
  for (const Key& key : keys()) {
    EXPECT_TRUE(seen.insert(key.path).second) << key.path;
    EXPECT_FALSE(key.doc.empty()) << key.path;
    EXPECT_FALSE(key.expects.empty()) << key.path;
  }
}

TEST(Keys, ReadWhatTheyWriteAndTakeTheirOwnDefaults) {
  const Config defaults;
  for (const Key& key : keys()) {
    const nlohmann::json value = key.read(defaults);
    RawValue raw;
    raw.is_list = value.is_array();
    for (const nlohmann::json& item : value.is_array() ? value : nlohmann::json::array({value})) {
      raw.items.push_back(item.is_string() ? item.get<std::string>() : item.dump());
    }
    Config config;
    EXPECT_EQ(key.write(config, raw, key.limits), std::nullopt) << key.path;
    EXPECT_EQ(config, defaults) << key.path;
  }
}

TEST(Keys, KnowTheirSections) {
  EXPECT_TRUE(is_section("train"));
  EXPECT_FALSE(is_section("train.steps"));
  EXPECT_FALSE(is_section("tra"));
  EXPECT_FALSE(is_section("name"));
  EXPECT_EQ(first_key_under("train"), "train.steps");
}

TEST(NearestKey, FindsSlipsWrongSectionsAndMissingSections) {
  EXPECT_EQ(nearest_key("train.step"), "train.steps");
  EXPECT_EQ(nearest_key("trian"), "train");
  EXPECT_EQ(nearest_key("steps"), "train.steps");
  EXPECT_EQ(nearest_key("train.layers"), "model.layers");
  EXPECT_EQ(nearest_key("model.layer"), "model.layers");
  EXPECT_EQ(nearest_key("presicion"), "precision");
}

TEST(Applies, LimitsKeysToTheFamiliesThatReadThem) {
  EXPECT_TRUE(applies(*find_key("model.kv_heads"), Family::Llama));
  EXPECT_FALSE(applies(*find_key("model.kv_heads"), Family::Gpt2));
  EXPECT_TRUE(applies(*find_key("model.blocks"), Family::Resnet));
  EXPECT_FALSE(applies(*find_key("model.blocks"), Family::Mlp));
  EXPECT_TRUE(applies(*find_key("train.steps"), Family::Mlp));
}

}  // namespace
}  // namespace tandem
