// Strategy dp: one process whose threads stand for devices. Each is a rank with its own session and its own
// part of the batch; they talk through memory. Simple to start, kept for comparison with ddp.
//
// Whoever runs steps starts here, whether this process is one rank or, with dp, all of them.
#pragma once

#include <functional>

#include "tandem/base/error.h"
#include "tandem/config/config.h"
#include "tandem/train/world.h"

namespace tandem {

// Runs `rank` once for each place on the config's data axis, at the same time. Returns rank 0's result;
// rethrows the first failure, by which the other ranks have been ended.
ExitCode run_device_threads(const Config& config, const std::function<ExitCode(const World&)>& rank);

// Runs `rank` in the world that `info` describes (join_world), or, with strategy dp and no launcher, as
// device threads. Where it throws, the other ranks need not wait for this one.
ExitCode run_in_world(const Config& config, const WorldInfo& info,
                      const std::function<ExitCode(const World&)>& rank,
                      const std::function<void()>& while_waiting = {});

}  // namespace tandem
