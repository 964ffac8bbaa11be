// Fills in the values that follow from others when the user left them out, and notes from which.
// Needs before: values decoded and in range. Needs after: validate.
#pragma once

#include "tandem/config/load.h"

namespace tandem {

void derive(ResolvedConfig& resolved, int num_ranks = 1);

// With parallel.elastic a step's data axis is the ranks that were started: parallel.data, which the config of
// a run has and which a plan may be given, is how many there were or may be.
void follow_ranks(Config& config, int num_ranks);

// Steps for train.epochs of a training set with so many samples, and what is derived from them. Apart from
// derive, because who knows configs alone does not open data.
void derive_epochs(ResolvedConfig& resolved, int64_t num_samples);

}  // namespace tandem
