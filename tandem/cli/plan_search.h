// `tandem plan --search`: the best of the ways to run a config, on one cluster or on several.
#pragma once

#include "tandem/cli/plan_cluster.h"

namespace tandem::cli {

ExitCode plan_search(const ClusterFlags& flags, ConfigFlags config, bool json, const Action& action);

}  // namespace tandem::cli
