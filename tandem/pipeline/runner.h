// Runs what a plan says is not yet there: every step as soon as what it needs is, so many at a time. Whatever
// ends the runner, the store is as if it had been ended between two steps, and running again goes on.
#pragma once

#include <string>

#include "tandem/base/error.h"
#include "tandem/pipeline/plan.h"

namespace tandem::pipeline {

struct RunOptions {
  int jobs = 1;
  bool keep_going = false;  // after a failure, with what does not need it
  std::string version;      // of this program, for records
};

// Tells on stderr what happens. Gives Done, or Interrupted after a signal, whose end the steps were given
// time for; throws Error where a step failed.
ExitCode run_pipeline(const Plan& plan, const RunOptions& options);

}  // namespace tandem::pipeline
