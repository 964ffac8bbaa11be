// What an attempt's end means for the launch, and what the user is told about it.
#pragma once

#include "tandem/launch/log_directory.h"
#include "tandem/launch/round.h"
#include "tandem/launch/supervisor.h"
#include "tandem/launch/terminal.h"

namespace tandem {

// How the round ends for a failure: restarted where restarts are left and the exit code allows it.
RoundEnd end_for_failure(const std::string& reason, int exit_code, int restarts, int max_restarts);

// How the round ends as far as this node can tell by itself.
RoundEnd judge(const AttemptResult& result, int restarts, int max_restarts);

// Tells how the attempt ended, the failed rank first, and no line of a rank that was shown already.
void report(const RoundEnd& end, const AttemptResult& result, int max_restarts, LogDirectory& logs,
            Terminal& terminal);

}  // namespace tandem
