#include "tandem/train/evaluate.h"

#include <algorithm>

namespace tandem {

void write_batch(Session& session, const Executable& executable, const MicroBatch& batch) {
  for (const Binding& input : executable.inputs) {
    const void* src = nullptr;
    if (input.name == "tokens") src = batch.tokens;
    if (input.name == "images") src = batch.images;
    if (input.name == "targets") src = batch.targets;
    if (src == nullptr) continue;  // not data: a scale, hyper-parameters
    session.write(executable, input.name,
                  {static_cast<const std::byte*>(src), static_cast<size_t>(input.slice.type.bytes())});
  }
}

EvalResult evaluate(Session& session, Loader& loader, int64_t samples, int64_t micro_batch) {
  loader.seek(0);
  int64_t count = loader.num_micro_batches();
  if (samples > 0) count = std::min(count, (samples + micro_batch - 1) / micro_batch);
  double nll = 0, correct = 0;
  EvalResult result;
  for (int64_t i = 0; i < count; ++i) {
    const MicroBatch batch = loader.next();
    write_batch(session, session.step().eval, batch);
    session.run_eval();
    const auto* stats = reinterpret_cast<const double*>(session.read(session.step().eval, "stats").data());
    nll += stats[0];
    correct += stats[1];
    result.targets += batch.num_valid_targets;
  }
  const auto targets = static_cast<double>(std::max<int64_t>(1, result.targets));
  result.loss = nll / targets;
  result.accuracy = correct / targets;
  return result;
}

}  // namespace tandem
