#include "tandem/train/evaluation/evaluate.h"

#include <algorithm>
#include <optional>

#include "tandem/train/write_batch.h"

namespace tandem {

EvalResult evaluate(Session& session, Loader& loader, const World& world) {
  loader.seek(0);
  const CompiledStep& step = session.step();
  const auto place = step.position.shape.pipeline > 1 ? std::optional<int>(0) : std::nullopt;
  const int64_t count = loader.num_micro_batches();
  double sums[3] = {};  // of the loss, of hits, of targets
  for (int64_t i = 0; i < count; ++i) {
    const MicroBatch batch = loader.next();
    write_batch(session, step.eval, batch, place);
    session.run_eval();
    if (!world.counts_loss()) continue;
    for (const Binding& output : step.eval.outputs) {
      if (!output.name.starts_with("stats")) continue;
      const auto* stats = reinterpret_cast<const double*>(session.read(step.eval, output.name).data());
      sums[0] += stats[0];
      sums[1] += stats[1];
    }
    sums[2] += static_cast<double>(batch.num_valid_targets);
  }
  world.sum(sums, "evaluation");
  EvalResult result;
  result.targets = static_cast<int64_t>(sums[2]);
  const double targets = std::max(1.0, sums[2]);
  result.loss = sums[0] / targets;
  result.accuracy = sums[1] / targets;
  return result;
}

}  // namespace tandem
