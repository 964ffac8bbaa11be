#include "tandem/train/evaluation/run_evaluation.h"

#include <limits>

#include "tandem/base/quantity.h"

namespace tandem {
namespace {

constexpr std::string_view kOfAverage = "eval_loss_ema";

Evaluation evaluate_weights(OpenRun& run) {
  StepRunner& runner = run.steps->runner();
  Session& session = run.steps->session();
  runner.show_average();
  Evaluation evaluation{run.steps->eval_sets().evaluate(session, run.world), {}};
  if (run.config.train.ema_eval && runner.updates() > 0) {
    session.exchange_weights();
    evaluation.ema = run.steps->eval_sets().evaluate(session, run.world);
    session.exchange_weights();
  }
  return evaluation;
}

}  // namespace

double Evaluation::loss_of(std::string_view metric) const {
  if (!metric.starts_with(kOfAverage)) return last.loss_of(metric);
  if (!ema) return std::numeric_limits<double>::quiet_NaN();
  return ema->loss_of(std::string("eval_loss").append(metric.substr(kOfAverage.size())));
}

Evaluation evaluate_run(OpenRun& run, StepRecord& record) {
  Evaluation evaluation = evaluate_weights(run);
  const EvalSets::Report& report = evaluation.last;
  record.eval_loss = static_cast<float>(report.all.loss);
  if (!run.config.model.is_language_model()) record.eval_accuracy = static_cast<float>(report.all.accuracy);
  EvalRecord evaluated{record.step, *record.eval_loss, record.eval_accuracy};
  const auto add = [&](std::string name, double value) {
    evaluated.more.emplace_back(std::move(name), static_cast<float>(value));
  };
  for (const auto& [name, value] : report.more()) add(name, value);
  std::string line = report.text(record.eval_accuracy.has_value());
  if (evaluation.ema) {
    add(std::string(kOfAverage), evaluation.ema->all.loss);
    for (const EvalSets::Named& set : evaluation.ema->named)
      add(fmt::format("{}/{}", kOfAverage, set.name), set.result.loss);
    line += fmt::format("; of the average {}", format_loss(evaluation.ema->all.loss));
  }
  record.more.insert(record.more.end(), evaluated.more.begin(), evaluated.more.end());
  run.journal.event(std::move(evaluated));
  run.journal.message(fmt::format("step {}: {}", record.step, line));
  return evaluation;
}

}  // namespace tandem
