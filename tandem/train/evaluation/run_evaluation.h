// An evaluation in the course of training: of the weights that training reports on (the average, where the
// optimizer keeps one), and with train.ema_eval of their moving average, too.
#pragma once

#include <optional>
#include <string_view>

#include "tandem/metrics/step_record.h"
#include "tandem/train/open_run.h"

namespace tandem {

struct Evaluation {
  EvalSets::Report last;
  std::optional<EvalSets::Report> ema;  // once there was an update
  // "eval_loss" or "eval_loss_ema", with "/NAME" or without; not a number where there is none yet.
  double loss_of(std::string_view metric) const;
};

// Adds it to the record, the events and the terminal. It changes no bit of what is trained. All ranks call it
// together.
Evaluation evaluate_run(OpenRun& run, StepRecord& record);

}  // namespace tandem
