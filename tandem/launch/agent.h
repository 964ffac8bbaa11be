// The launcher of one node: attempt after attempt, alone or together with the launchers of other nodes.
#pragma once

#include "tandem/launch/options.h"
#include "tandem/launch/terminal.h"

namespace tandem {

// Runs options.program as ranks and returns the exit code: 0; 2, 3 or 4 where a rank ended with it (never
// restarted); 75 where ranks were interrupted and saved their work; 128 + signal where they were interrupted
// and did not; 1 for any other failure once the restarts are used up. Failures of ranks are told on
// `terminal`; what keeps ranks from being started at all is thrown.
int run_launch(const LaunchOptions& options, Terminal& terminal);

}  // namespace tandem
