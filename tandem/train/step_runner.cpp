#include "tandem/train/step_runner.h"

#include "tandem/train/evaluate.h"
#include "tandem/train/lr_schedule.h"

namespace tandem {

StepRunner::StepRunner(const Config& config, Session& session, Loader& loader)
    : config_(config), session_(session), loader_(loader), scaler_(config.train, config.precision) {}

StepResult StepRunner::run(int64_t step) {
  const Executable& pass = session_.step().pass;
  StepResult result;
  // The whole batch's number of targets weighs every pass, so that accumulated gradients are those of the
  // batch in one piece, however unevenly targets are spread over it.
  result.targets = loader_.valid_targets(loader_.position(), config_.train.batch);
  const float scale =
      static_cast<float>(scaler_.scale() / static_cast<double>(std::max<int64_t>(1, result.targets)));
  double nll = 0, correct = 0;
  for (int64_t i = 0; i < config_.accumulation(); ++i) {
    const MicroBatch batch = loader_.next();
    result.data_wait_s += batch.wait_s;
    result.epoch = batch.epoch;
    write_batch(session_, pass, batch);
    session_.write(pass, "scale", std::as_bytes(std::span(&scale, 1)));
    session_.run_pass();
    const auto* stats = reinterpret_cast<const double*>(session_.read(pass, "stats").data());
    nll += stats[0];
    correct += stats[1];
  }
  write_hyper(step);
  session_.run_update();
  const auto* norm = reinterpret_cast<const double*>(session_.read(session_.step().update, "norm").data());
  result.grad_norm = norm[0];
  result.applied = norm[1] != 0;
  result.loss_scale = scaler_.scale();
  if (result.applied) ++updates_;
  scaler_.update(result.applied);
  const auto targets = static_cast<double>(std::max<int64_t>(1, result.targets));
  result.loss = nll / targets;
  result.accuracy = correct / targets;
  return result;
}

void StepRunner::write_hyper(int64_t step) {
  const TrainConfig& train = config_.train;
  float hyper[kHyperSlots] = {};
  hyper[kHyperLr] = static_cast<float>(learning_rate(train, step));
  hyper[kHyperBeta1] =
      static_cast<float>(train.optimizer == OptimizerKind::Sgd ? train.momentum : train.beta1);
  hyper[kHyperBeta2] = static_cast<float>(train.beta2);
  hyper[kHyperEps] = static_cast<float>(train.eps);
  hyper[kHyperDecay] = static_cast<float>(train.weight_decay);
  hyper[kHyperStep] = static_cast<float>(updates_ + 1);
  hyper[kHyperInvScale] = static_cast<float>(1.0 / scaler_.scale());
  hyper[kHyperClip] = static_cast<float>(train.clip);
  session_.write(session_.step().update, "hyper", std::as_bytes(std::span(hyper)));
}

}  // namespace tandem
