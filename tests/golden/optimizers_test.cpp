// Updates of optimizers, as they are compiled, against 20 steps of a plain Python program
// (make_optimizers.py).
#include <cmath>

#include "tests/golden/updates_test.h"

namespace tandem {
namespace {

TEST(Optimizers, FollowThePublishedRules) {
  const nlohmann::json golden = read_golden("optimizers.json");
  for (OptimizerKind kind :
       {OptimizerKind::Lamb, OptimizerKind::Lars, OptimizerKind::ScheduleFree, OptimizerKind::Adafactor}) {
    const std::string name(optimizer_entry(kind).name);
    CompileOptions options;
    options.optimizer = kind;
    const auto hyper = [&](int64_t step) {
      const auto count = static_cast<float>(step);
      std::vector<float> values = {golden["lr"], golden["decay"], count, 1, 0, 0, 1 / count};
      for (const nlohmann::json& own : golden["own"][name]) values.push_back(own);
      if (optimizer_entry(kind).factored) values[kHyperAverage] = std::pow(count, values[kHyperOwn]);
      return values;
    };
    const bool averages = optimizer_entry(kind).averages;
    expect_updates(golden, name, options, hyper, averages ? "master:" : "weights:");
  }
}

}  // namespace
}  // namespace tandem
