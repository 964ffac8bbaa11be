// What a run says of itself when it begins and when it is done.
#pragma once

#include "tandem/train/interrupt.h"
#include "tandem/train/open_run.h"

namespace tandem {

// Of the steps that this process took.
struct RunTotals {
  int64_t num_steps = 0;
  double first_step_s = 0;    // from the start of the process to the end of its first step
  double train_s = 0;         // of the steps after the first, which warms caches
  int64_t train_targets = 0;  // in them
  double peak_flops = 0;      // that all devices could do in a second; known on rank 0
};

double batch_flops(const OpenRun& run, int64_t samples);  // that the model asks for, on all ranks

void announce_run(OpenRun& run, int64_t resumed);

// It was asked to stop, by a signal or a notice, and step `saved` is its newest checkpoint; 0 where none is.
void tell_interrupted(OpenRun& run, const InterruptListener& interrupt, int64_t saved);

// summary.json and the table on the terminal. Rank 0 calls it.
void finish_run(OpenRun& run, const StepRecord& last, const RunTotals& totals);

}  // namespace tandem
