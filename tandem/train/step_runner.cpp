#include "tandem/train/step_runner.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/exact/exact_squares.h"
#include "tandem/base/exact/fixed_point.h"
#include "tandem/comm/places/place_page.h"
#include "tandem/compile/passes/loss/loss_scaler.h"
#include "tandem/compile/update_graph.h"
#include "tandem/models/apply_groups.h"
#include "tandem/train/lr_schedule.h"
#include "tandem/train/write_batch.h"

namespace tandem {
namespace {

// Wishes of ranks, added up: at most one of them, rank 0, wants a checkpoint.
constexpr int64_t kSave = 1, kStop = 2;

}  // namespace

std::vector<NormGroup> norm_groups(const Config& config, const BuildModel& model) {
  const std::vector<TrainGroup>& groups = config.train.groups;
  std::vector<NormGroup> found;
  if (groups.empty()) return found;
  std::vector<std::vector<size_t>> members =
      members_of(groups, model(config.model, config.train.micro_batch));
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].frozen) found.push_back({"grad_norm/" + groups[i].match, std::move(members[i])});
  }
  return found;
}

StepRunner::StepRunner(const Config& config, Session& session, Loader& loader, std::vector<NormGroup> groups)
    : config_(config),
      session_(session),
      loader_(loader),
      groups_(std::move(groups)),
      scaler_(config.train, config.precision) {}

// A pipeline rank runs all micro-batches of the step in one pass, others one micro-batch a pass.
void StepRunner::run_passes(float scale, StepResult& result) {
  const CompiledStep& step = session_.step();
  const int64_t count = loader_.micro_batches_in(result.samples);
  pass_stats_.clear();
  pass_stats_.reserve(static_cast<size_t>(count));  // read_later writes into it
  for (int64_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count && !step.last_pass.commands.empty();
    const Executable& pass = last ? step.last_pass : step.pass;
    tell_what("data");
    const MicroBatch batch = loader_.next();
    result.data_wait_s += batch.wait_s;
    result.epoch = batch.epoch;
    const bool pipeline = step.position.shape.pipeline > 1;
    write_batch(session_, pass, batch, pipeline ? std::optional(static_cast<int>(i)) : std::nullopt);
    if (i + 1 < step.micro_batches) continue;
    tell_pass(i / step.micro_batches + 1, count / step.micro_batches);
    write_if_there(session_, pass, "scale", std::as_bytes(std::span(&scale, 1)));
    if (last) {
      session_.run_last_pass();
    } else {
      session_.run_pass();
    }
    if (!alone()) continue;
    for (const Binding& output : pass.outputs) {
      if (!output.name.starts_with("stats")) continue;
      pass_stats_.emplace_back();
      session_.read_later(pass, output.name, std::as_writable_bytes(std::span(pass_stats_.back())));
    }
  }
}

void StepRunner::add_stats(std::span<double> sums) const {
  const bool fixed_order = config_.parallel.reproducible == Reproducible::Layout;
  for (const auto& [loss, correct] : pass_stats_) {
    sums[kStatLoss] += fixed_order ? to_fixed_point(loss) : loss;
    sums[kStatCorrect] += correct;
  }
}

void StepRunner::show_average() {
  if (session_.averages() && !std::exchange(average_shown_, true)) session_.blend_weights(0);
}

StepResult StepRunner::run(int64_t step, bool stop, bool save, const std::function<void()>& before_update) {
  StepResult result;
  tell_step(step);
  if (session_.averages() && std::exchange(average_shown_, false)) {
    // As the optimizer has it (optimizers/schedule_free.h), whose weights these are.
    const auto beta1 = static_cast<float>(config_.train.hyper[hyper_key_index("train.beta1")]);
    session_.blend_weights(static_cast<float>(1 - static_cast<double>(beta1)));
  }
  // The whole batch's number of targets weighs every pass, so that accumulated gradients are those of the
  // batch in one piece, however unevenly targets are spread over it.
  result.samples = loader_.batch_size();
  result.first_sample = loader_.position();
  result.targets = loader_.valid_targets(result.first_sample, result.samples);
  const auto targets = static_cast<double>(std::max<int64_t>(1, result.targets));
  if (scaler_.active() && !std::exchange(scaler_written_, true)) {
    const Slice& state = session_.step().find(kLossScaler)->slice;
    session_.write_buffer(state, 0, std::as_bytes(std::span(scaler_.values())));
  }
  run_passes(static_cast<float>(1 / targets), result);
  tell_what("update");
  if (before_update) before_update();
  const Executable& update = session_.step().update;
  const std::vector<std::string>& metrics = session_.step().metrics;
  std::vector<double> stats(kNumStats + metrics.size());
  stats[kStatStop] = (stop ? kStop : 0) + (save ? kSave : 0);
  session_.write(update, "stats", std::as_bytes(std::span(stats)));
  write_hyper(step);
  session_.run_update();
  double norm[2] = {};
  session_.read_later(update, "norm", std::as_writable_bytes(std::span(norm)));
  result.loss_scale = scaler_.scale();
  if (scaler_.active())
    session_.read_later(update, kLossScaler, std::as_writable_bytes(std::span(scaler_.values())));
  const std::span<const std::byte> sums = session_.read(update, "sums");
  result.grad_norm = norm[0];
  result.applied = norm[1] != 0;
  if (result.applied) ++updates_;
  add_group_norms(sums, result);
  std::vector<double> totals(stats.size());
  const size_t bytes = totals.size() * sizeof(double);
  std::memcpy(totals.data(), sums.data() + sums.size() - bytes, bytes);
  if (alone()) add_stats(totals);
  // Each micro-batch has added its mean, on every rank of the tensor axis.
  const auto passes = static_cast<double>(session_.step().position.shape.tensor * result.samples) /
                      static_cast<double>(config_.train.micro_batch);
  for (size_t i = 0; i < metrics.size(); ++i)
    result.metrics.emplace_back("metric/" + metrics[i], static_cast<float>(totals[kNumStats + i] / passes));
  result.loss = totals[kStatLoss] / targets;
  result.accuracy = totals[kStatCorrect] / targets;
  const auto wishes = static_cast<int64_t>(totals[kStatStop]);
  result.stop = wishes >= kStop;
  result.save = wishes % kStop != 0;
  return result;
}

// The update's sums of squares have one for each parameter first (ir/ops/optimizer.cpp), or its limbs.
void StepRunner::add_group_norms(std::span<const std::byte> sums, StepResult& result) const {
  const bool exact = config_.parallel.reproducible == Reproducible::Layout;
  const size_t each = exact ? ExactSquares::kLimbs : 1;
  std::vector<double> squares;
  for (const NormGroup& group : groups_) {
    squares.assign(each * group.params.size(), 0);
    for (size_t i = 0; i < group.params.size(); ++i) {
      const size_t begin = group.params[i] * each * sizeof(double);
      TANDEM_CHECK(begin + each * sizeof(double) <= sums.size());
      std::memcpy(&squares[i * each], sums.data() + begin, each * sizeof(double));
    }
    const double norm = exact ? std::sqrt(ExactSquares::total_of_all(squares)) / result.loss_scale
                              : std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
    result.group_norms.emplace_back(group.name, static_cast<float>(norm));
  }
}

void StepRunner::write_hyper(int64_t step) {
  const TrainConfig& train = config_.train;
  std::vector<float> hyper(static_cast<size_t>(num_hyper_slots(train.optimizer)));
  hyper[kHyperLr] = static_cast<float>(learning_rate(train, step));
  hyper[kHyperDecay] = static_cast<float>(train.weight_decay);
  hyper[kHyperStep] = static_cast<float>(updates_ + 1);
  hyper[kHyperInvScale] = 1;  // but for what the step itself does about a scaled loss
  hyper[kHyperClip] = static_cast<float>(train.clip);
  hyper[kHyperClipValue] = static_cast<float>(train.clip_value);
  if (session_.averages()) hyper[kHyperAverage] = static_cast<float>(average_.share(train, step));
  if (optimizer_entry(train.optimizer).factored) {
    const double power = train.hyper[hyper_key_index("train.beta2_decay")];
    hyper[kHyperAverage] = static_cast<float>(std::pow(updates_ + 1, power));
  }
  size_t own = kHyperOwn;
  for (const HyperParam& param : optimizer_entry(train.optimizer).hyper)
    hyper[own++] = static_cast<float>(train.hyper[hyper_key_index(param.key)]);
  session_.write(session_.step().update, "hyper", std::as_bytes(std::span(hyper)));
}

}  // namespace tandem
