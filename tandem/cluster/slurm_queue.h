// Slurm's own programs, asked for a job at a time. All throw ConfigError where they are not installed, and
// IoError with Slurm's own words where it refuses.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::cluster {

std::string submit_to_slurm(const std::string& script);  // the job's number

struct SlurmState {
  std::string
      state;  // "RUNNING"; of an array, that of its first task in the queue; empty: no longer in the queue
  std::string reason;  // why it waits
};
SlurmState slurm_state(const std::string& id);

// All tasks of a job that the queue still has: one, or those of an array.
struct SlurmTask {
  std::string id, state, reason, nodes, elapsed, limit;
  std::string start;  // when it has started, or when Slurm thinks it will; "N/A"
};
std::vector<SlurmTask> slurm_tasks(const std::string& id);

// The number of this user's job of that name that is in the queue, if there is one.
std::optional<std::string> find_in_slurm(const std::string& name);

void cancel_in_slurm(const std::string& id);

// A pattern of --output for a job: %j and %A as its number, %a as its task's, %x as its name. ConfigError
// where it holds others, or the job is an array and `id` names no task ("123_4" does).
std::string slurm_output_path(const std::string& pattern, const std::string& id, const std::string& name,
                              const std::string& directory);

}  // namespace tandem::cluster
