#include "tandem/plan/search.h"

#include <gtest/gtest.h>

#include <set>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/kernels/cpu/backend.h"

namespace tandem::plan {
namespace {

constexpr char kModel[] =
    "model: {family: llama, layers: 4, width: 1024, heads: 8, kv_heads: 4, context: 1024, vocab: 8192, "
    "tied: false, qkv_bias: false}\n";

ResolvedConfig config_of(const std::string& sections) {
  return parse_config("threads: 1\n" + std::string(kModel) + sections, "config");
}

SearchResult search_on(const ResolvedConfig& given, Cluster cluster, bool exhaustive = false) {
  Backend backend = backend_on(cluster, cpu::make_backend());
  backend.overwrites_gradients = true;
  return search(given, backend, cluster, {.threads = 2, .exhaustive = exhaustive});
}

// GPUs with so little memory that not everything fits.
Cluster small(const std::string& name, double gib) {
  Cluster cluster = find_cluster(name);
  cluster.gpu.memory_bytes = gib * (1 << 30);
  return cluster;
}

void expect_same(const ResolvedConfig& given, const Cluster& cluster) {
  const SearchResult found = search_on(given, cluster), all = search_on(given, cluster, true);
  EXPECT_LT(found.compiled, all.compiled);
  ASSERT_EQ(found.choices.size(), all.choices.size());
  for (size_t i = 0; i < all.choices.size(); ++i) {
    EXPECT_DOUBLE_EQ(found.choices[i].plan.step_s, all.choices[i].plan.step_s) << i;
    EXPECT_TRUE(fits(found.choices[i].plan));
  }
}

TEST(Search, FindsWhatTryingEverythingFinds) {
  expect_same(config_of("train: {batch: 8}\nprecision: bf16\nparallel: {tensor: 2}\nmemory: {offload: []}\n"),
              small("h100-sxm:8", 1.2));
  expect_same(
      config_of("train: {batch: 8, micro_batch: 1}\nparallel: {tensor: 1}\nmemory: {recompute: none}\n"),
      small("a100-sxm:4", 1.6));
}

TEST(Search, KeepsWhatTheUserFixed) {
  const ResolvedConfig given =
      config_of("train: {batch: 16, micro_batch: 2}\nprecision: bf16\nparallel: {tensor: 2}\n");
  const SearchResult found = search_on(given, find_cluster("h100-sxm:8"));
  for (const Choice& choice : found.choices) {
    EXPECT_EQ(choice.config.parallel.tensor, 2);
    EXPECT_EQ(choice.config.train.micro_batch, 2);
    EXPECT_EQ(choice.config.precision, Precision::Bf16);
    EXPECT_EQ(choice.plan.mesh.world(), 8);
  }
  // What was not fixed changes.
  EXPECT_NE(found.choices.front().config.parallel.strategy, Strategy::Single);
}

TEST(Search, EveryFamilyOnceAndTheFastestFirst) {
  const SearchResult found =
      search_on(config_of("train: {batch: 16}\nprecision: bf16\n"), find_cluster("h100-sxm:8"));
  EXPECT_EQ(found.choices.size(), 10u);
  std::set<std::string> families;
  for (size_t i = 0; i < found.choices.size(); ++i) {
    EXPECT_TRUE(families.insert(family_of(found.choices[i].candidate)).second);
    if (i == 0) continue;
    EXPECT_GE(found.choices[i].plan.step_s, found.choices[i - 1].plan.step_s);
  }
}

TEST(Search, SaysWhatWouldBeNeededWhereNothingFits) {
  const ResolvedConfig given = config_of("train: {batch: 16}\nprecision: bf16\nmemory: {offload: []}\n");
  const std::string message = message_of<PlanError>([&] { search_on(given, small("h100-sxm:2", 0.2)); });
  EXPECT_NE(message.find("the smallest needs about"), std::string::npos) << message;
  EXPECT_THROW(search_on(config_of("train: {batch: 7, micro_batch: 7}\nparallel: {tensor: 1, pipeline: 1}\n"),
                         find_cluster("h100-sxm:2")),
               ConfigError);
}

TEST(Search, SaysWhatTheMachineWouldNeedWhereOnlyTheGpusHaveEnough) {
  Cluster cluster = find_cluster("h100-sxm:2");
  cluster.host_memory = 1 << 20;
  const ResolvedConfig given = config_of("train: {batch: 16}\nprecision: bf16\n");
  const std::string message = message_of<PlanError>([&] { search_on(given, cluster); });
  EXPECT_NE(message.find("of a machine's own memory, which has 1.0 MiB"), std::string::npos) << message;
}

}  // namespace
}  // namespace tandem::plan
