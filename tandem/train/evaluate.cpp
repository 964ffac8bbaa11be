#include "tandem/train/evaluate.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {

void write_if_there(Session& session, const Executable& executable, std::string_view input,
                    std::span<const std::byte> bytes) {
  for (const Binding& binding : executable.inputs) {
    if (binding.name == input) session.write(executable, input, bytes);
  }
}

void write_batch(Session& session, const Executable& executable, const MicroBatch& batch, int64_t place) {
  const std::string suffix = place == kOneMicroBatch ? std::string() : fmt::format(".{}", place);
  const auto write = [&](const char* name, const void* src) {
    if (src == nullptr) return;
    for (const Binding& input : executable.inputs) {
      if (input.name != name + suffix) continue;
      session.write(executable, input.name,
                    {static_cast<const std::byte*>(src), static_cast<size_t>(input.slice.type.bytes())});
    }
  };
  write("tokens", batch.tokens);
  write("images", batch.images);
  write("targets", batch.targets);
}

EvalResult evaluate(Session& session, Loader& loader, const World& world) {
  loader.seek(0);
  const CompiledStep& step = session.step();
  const int64_t count = loader.num_micro_batches();
  double sums[3] = {};  // of the loss, of hits, of targets
  for (int64_t i = 0; i < count; ++i) {
    const MicroBatch batch = loader.next();
    write_batch(session, step.eval, batch, step.position.shape.pipeline > 1 ? 0 : kOneMicroBatch);
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
