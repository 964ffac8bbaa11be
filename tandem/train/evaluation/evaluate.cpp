#include "tandem/train/evaluation/evaluate.h"

#include <algorithm>
#include <optional>

#include "tandem/base/exact/fixed_point.h"
#include "tandem/train/write_batch.h"

namespace tandem {

namespace {

constexpr int64_t kTop = 5;

float value_at(DType dtype, const std::byte* values, int64_t i) {
  switch (dtype) {
    case DType::BF16: return to_float(reinterpret_cast<const BFloat16*>(values)[i]);
    case DType::F16: return to_float(reinterpret_cast<const Half*>(values)[i]);
    default: return reinterpret_cast<const float*>(values)[i];
  }
}

// The logits of images, where this rank has all of them and there are more than five.
const Binding* whole_logits(const CompiledStep& step) {
  if (step.position.shape.tensor > 1 || step.position.shape.pipeline > 1) return nullptr;
  for (const Binding& output : step.eval.outputs) {
    const Shape& shape = output.slice.type.shape;
    if (output.name == "logits" && shape.rank() == 2 && shape.last() > kTop) return &output;
  }
  return nullptr;
}

// Targets with fewer than five classes before them: larger logits, or equal ones that come first.
int64_t count_top(const Binding& logits, std::span<const std::byte> values, const int32_t* targets) {
  const DType dtype = logits.slice.type.dtype;
  const int64_t rows = logits.slice.type.shape[0], classes = logits.slice.type.shape.last();
  int64_t hits = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (targets[row] < 0) continue;
    const std::byte* at = values.data() + row * classes * dtype_bytes(dtype);
    const float own = value_at(dtype, at, targets[row]);
    int64_t before = 0;
    for (int64_t c = 0; c < classes; ++c) {
      const float other = value_at(dtype, at, c);
      before += other > own || (other == own && c < targets[row]) ? 1 : 0;
    }
    hits += before < kTop && own == own ? 1 : 0;
  }
  return hits;
}

}  // namespace

EvalResult evaluate(Session& session, Loader& loader, const World& world) {
  loader.seek(0);
  const CompiledStep& step = session.step();
  const auto place = step.position.shape.pipeline > 1 ? std::optional<int>(0) : std::nullopt;
  const int64_t count = loader.num_micro_batches();
  const Binding* const logits = whole_logits(step);
  double sums[4] = {};  // of the loss, of hits, of targets, of hits of the first five
  for (int64_t i = 0; i < count; ++i) {
    const MicroBatch batch = loader.next();
    write_batch(session, step.eval, batch, place);
    session.run_eval();
    if (!world.counts_loss()) continue;
    for (const Binding& output : step.eval.outputs) {
      if (!output.name.starts_with("stats")) continue;
      const auto* stats = reinterpret_cast<const double*>(session.read(step.eval, output.name).data());
      sums[0] += to_fixed_point(stats[0]);
      sums[1] += stats[1];
    }
    sums[2] += static_cast<double>(batch.num_valid_targets);
    if (logits != nullptr)
      sums[3] += static_cast<double>(count_top(*logits, session.read(step.eval, "logits"), batch.targets));
  }
  world.sum(sums, "evaluation");
  EvalResult result;
  result.targets = static_cast<int64_t>(sums[2]);
  const double targets = std::max(1.0, sums[2]);
  result.loss = sums[0] / targets;
  result.accuracy = sums[1] / targets;
  if (logits != nullptr) result.top5 = sums[3] / targets;
  return result;
}

}  // namespace tandem
