#include "tandem/models/apply_groups.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/models/tiny_gpt2_test.h"

namespace tandem {
namespace {

const Attrs& attrs_of(const Graph& graph, std::string_view name) {
  return graph.node(graph.find(name).node).attrs;
}

std::string refusal(const std::vector<TrainGroup>& groups) {
  Graph graph = build_model(tiny_gpt2(2), 2);
  return message_of<ConfigError>([&] { apply_groups(groups, graph); });
}

TEST(ApplyGroups, TheFirstMatchCounts) {
  Graph graph = build_model(tiny_gpt2(2), 2);
  apply_groups({{.match = "blocks.0.*.bias", .lr = 0.5},
                {.match = "blocks.?.*", .decay = 0},
                {.match = "embed.weight", .frozen = true}},
               graph);
  EXPECT_EQ(attrs_of(graph, "blocks.0.up.bias").real_or("lr", 1), 0.5);
  EXPECT_FALSE(attrs_of(graph, "blocks.0.up.bias").has("decay"));
  EXPECT_EQ(attrs_of(graph, "blocks.1.up.bias").real_or("decay", 1), 0);
  EXPECT_EQ(attrs_of(graph, "blocks.0.up.weight").real_or("decay", 1), 0);
  EXPECT_EQ(attrs_of(graph, "embed.weight").integer_or("frozen", 0), 1);
  EXPECT_FALSE(attrs_of(graph, "norm.weight").has("decay"));
}

TEST(ApplyGroups, TellsWhichParametersEachHas) {
  const Graph graph = build_model(tiny_gpt2(1), 2);
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::Param) names.push_back(node.name);
  }
  const auto members = members_of({{.match = "*.bias"}, {.match = "blocks.*"}}, graph);
  ASSERT_EQ(members.size(), 2u);
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_bias = names[i].ends_with(".bias"), in_block = names[i].starts_with("blocks.");
    EXPECT_EQ(std::count(members[0].begin(), members[0].end(), i), is_bias ? 1 : 0) << names[i];
    EXPECT_EQ(std::count(members[1].begin(), members[1].end(), i), !is_bias && in_block ? 1 : 0) << names[i];
  }
}

TEST(ApplyGroups, RefusesWhatMatchesNothing) {
  EXPECT_EQ(refusal({{.match = "embd.weight", .frozen = true}}),
            "train.groups: 'embd.weight' matches no parameter; the nearest name is 'embed.weight'");
  EXPECT_EQ(refusal({{.match = "blocks.*", .lr = 0.5}, {.match = "blocks.1.*", .lr = 0.1}}),
            "train.groups: all that 'blocks.1.*' matches is in groups before it, of which the first counts");
  EXPECT_EQ(refusal({{.match = "*", .frozen = true}}),
            "train.groups: every parameter is frozen; leave some to train");
}

}  // namespace
}  // namespace tandem
