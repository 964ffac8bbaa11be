// Which program a step's first word means. `tandem` is this very program, so that a pipeline uses one version
// throughout.
#pragma once

#include <string>

#include "tandem/pipeline/plan.h"

namespace tandem::pipeline {

std::string program_of(const std::string& word);

// Throws ConfigError for the first program that is nowhere, before anything runs. One that a step makes is
// looked for when its turn comes.
void check_programs(const Plan& plan);

}  // namespace tandem::pipeline
