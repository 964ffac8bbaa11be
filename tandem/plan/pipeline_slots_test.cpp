#include "tandem/plan/pipeline_slots.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tandem/config/load.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/plan/time_plan.h"

namespace tandem::plan {
namespace {

Config config_of(const std::string& sections, int64_t passes) {
  const std::string yaml = fmt::format(
      "threads: 1\nprecision: bf16\nmodel: {{family: llama, layers: 10, width: 64, heads: 4, kv_heads: 2, "
      "context: 64, vocab: 512}}\ntrain: {{batch: {}, micro_batch: 2}}\n{}\n",
      passes * 2 * 2, sections);
  return parse_config(yaml, "config").config;
}

struct Plans {
  TimePlan whole, folded, alike;
};
Plans plans_of(const std::string& sections, int64_t passes) {
  const Config config = config_of(sections, passes);
  const Cluster cluster = find_cluster("a100-sxm:" + std::to_string(8));
  const Backend backend = backend_on(cluster, cpu::make_backend());
  const auto plan = [&](const PlanOptions& options) {
    return CompiledRanks(config, backend, cluster, options).on(cluster);
  };
  return {plan({.whole = true}), plan({.threads = 2}), plan({.alike_once = true})};
}

const char* const kMeshes[] = {
    "parallel: {strategy: ddp, data: 2, pipeline: 4}",
    "parallel: {strategy: zero1, data: 2, pipeline: 4}\nmemory: {recompute: selective}",
    "parallel: {strategy: fsdp, data: 2, pipeline: 4}\nmemory: {recompute: full}",
    "parallel: {strategy: ddp, data: 2, pipeline: 4, schedule: interleaved, chunks: 2}",
    "parallel: {strategy: zero1, data: 2, pipeline: 4, schedule: interleaved, chunks: 2}\n"
    "memory: {recompute: full}",
    "parallel: {strategy: ddp, data: 2, tensor: 2, pipeline: 2}\nmemory: {recompute: selective}",
};

TEST(PipelineSlots, AStepOfManyPassesIsReadOffOneOfFew) {
  for (const char* mesh : kMeshes) {
    for (const int64_t passes : {44}) {
      const Plans plans = plans_of(mesh, passes);
      SCOPED_TRACE(fmt::format("{} with {} passes", mesh, passes));
      // Memory to the byte, of every stage.
      for (size_t i = 0; i < plans.whole.ranks.size(); ++i)
        EXPECT_EQ(plans.folded.ranks[i].memory, plans.whole.ranks[i].memory) << "stage " << i;
      EXPECT_EQ(plans.folded.memory_bytes, plans.whole.memory_bytes);
      EXPECT_EQ(plans.alike.memory_bytes, plans.whole.memory_bytes);
      for (const TimePlan* plan : {&plans.folded, &plans.alike}) {
        EXPECT_NEAR(plan->step_s / plans.whole.step_s, 1, 0.01);
        EXPECT_NEAR(plan->parts().total(), plan->step_s, 1e-9 * plan->step_s);
        EXPECT_NEAR(plan->ranks[1].time.sent.within_node / plans.whole.ranks[1].time.sent.within_node, 1,
                    1e-9);
      }
    }
  }
}

TEST(PipelineSlots, StagesWithAsManyBlocksAreAlike) {
  // 10 blocks on 4 stages: 2, 3, 3 and 2.
  EXPECT_EQ(alike_stages(10, 4, 1), (std::vector<int>{0, 1, 1, 3}));
  EXPECT_EQ(alike_stages(8, 2, 1), (std::vector<int>{0, 1}));
}

TEST(PipelineSlots, GpipeKeepsEveryPass) {
  EXPECT_EQ(passes_to_compile(PipelineSchedule::GPipe, 4, 100), 100);
  EXPECT_EQ(passes_to_compile(PipelineSchedule::OneFOneB, 4, 100), 8);
  EXPECT_EQ(passes_to_compile(PipelineSchedule::OneFOneB, 4, 5), 5);
  EXPECT_EQ(passes_to_compile(PipelineSchedule::OneFOneB, 1, 100), 100);
}

}  // namespace
}  // namespace tandem::plan
