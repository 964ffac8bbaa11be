#include "tandem/compile/pass_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tandem/compile/commands_test.h"
#include "tandem/ir/text.h"
#include "tandem/models/model.h"
#include "tandem/models/tiny_gpt2_test.h"

namespace tandem {
namespace {

std::vector<std::string_view> listed(const PassInfo::Names& names) {
  std::vector<std::string_view> result;
  for (std::string_view name : names) {
    if (!name.empty()) result.push_back(name);
  }
  return result;
}

std::vector<Pass> all_passes() {
  static const CompileOptions options;
  static const StepDraft draft;
  return pass_list(options, draft);
}

TEST(PassList, HasEveryPassWhereItAsksToBe) {
  std::map<std::string_view, int> places;
  const std::vector<Pass> passes = all_passes();
  for (int i = 0; i < static_cast<int>(passes.size()); ++i)
    EXPECT_TRUE(places.emplace(passes[static_cast<size_t>(i)].info.name, i).second) << "named twice";
  for (const Pass& pass : passes) {
    const int own = places.at(pass.info.name);
    for (std::string_view name : listed(pass.info.needs_before)) {
      ASSERT_TRUE(places.contains(name)) << pass.info.name << " needs " << name;
      EXPECT_LT(places.at(name), own) << pass.info.name << " needs " << name << " before it";
    }
    for (std::string_view name : listed(pass.info.needs_after)) {
      ASSERT_TRUE(places.contains(name)) << pass.info.name << " needs " << name;
      EXPECT_GT(places.at(name), own) << pass.info.name << " needs " << name << " after it";
    }
  }
}

TEST(PassList, NeedsNoPassThatMayBeLeftOutAfterIt) {
  const std::vector<std::string_view> optional = optional_passes();
  for (const Pass& pass : all_passes()) {
    for (std::string_view name : listed(pass.info.needs_after))
      EXPECT_EQ(std::count(optional.begin(), optional.end(), name), 0)
          << pass.info.name << " leaves work to " << name;
  }
}

struct Seen {
  std::vector<std::string> names;  // in order
  std::map<std::string, std::string> graphs;
};

Seen compiled(CompileOptions options) {
  Seen seen;
  options.choose = choose_by_name;
  options.observe = [&](std::string_view pass, const Graph& graph, double ms) {
    EXPECT_GE(ms, 0);
    seen.names.emplace_back(pass);
    seen.graphs[std::string(pass)] += print(graph);
  };
  compile_step(build_model(tiny_gpt2(2), 2), options);
  return seen;
}

TEST(PassList, ShowsEveryPassThatRan) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(compiled({}).names,
            (Names{"model", "tensor", "sync_norm", "precision", "differentiate", "recompute", "fuse", "data",
                   "schedule", "update", "inference", "eval.fuse", "eval.data", "eval.schedule"}));
  CompileOptions options;
  options.parallel.at = MeshPosition::of({2, 1, 2}, 3);
  options.parallel.strategy = Strategy::Zero1;
  options.parallel.micro_batches = 2;
  options.parallel.reduce_once = true;
  options.precision.storage = DType::BF16;
  options.ema = 0.5;
  options.shows_ema = true;
  const Names names = compiled(options).names;
  EXPECT_EQ(names, (Names{"model",         "tensor",        "sync_norm",   "stage",     "precision",
                          "differentiate", "loss_stats",    "recompute",   "fuse",      "data",
                          "schedule",      "unroll",        "recompute",   "fuse",      "data",
                          "schedule",      "unroll",        "update",      "inference", "eval.fuse",
                          "eval.data",     "eval.schedule", "eval.unroll", "gather",    "exchange"}));
  const std::vector<std::string> known = pass_names();
  for (const std::string& name : names)
    EXPECT_EQ(std::count(known.begin(), known.end(), name), 1) << name << " cannot be dumped";
}

TEST(PassList, LeavesOutWhatItIsToldTo) {
  CompileOptions options;
  options.recompute.kind = RecomputeKind::Full;
  const Seen whole = compiled(options);
  for (const std::string name : {"fuse", "recompute"}) {
    options.without = {name};
    const Seen seen = compiled(options);
    EXPECT_FALSE(seen.graphs.contains(name));
    EXPECT_FALSE(seen.graphs.contains("eval." + name));
    EXPECT_EQ(seen.graphs.at("differentiate"), whole.graphs.at("differentiate"));
    EXPECT_NE(seen.graphs.at("schedule"), whole.graphs.at("schedule"));
  }
}

}  // namespace
}  // namespace tandem
