// A run as a batch script of Slurm's, as one of its users would write it: sbatch takes it as it is.
//
// One launcher a node restarts ranks that fail. Slurm's SIGTERM, before the time limit or when a job of
// higher priority wants the nodes, makes ranks save their work and end with 75; the script then puts the job
// back into the queue, where it goes on from that checkpoint. A lost node makes Slurm do the same
// (--requeue).
#pragma once

#include <string>
#include <vector>

#include "tandem/cluster/job.h"

namespace tandem::cluster {

struct SlurmOptions {
  // As sbatch's flags of these names; empty: not said.
  std::string time, partition, account, qos, constraint, reservation, array, comment;
  std::string output;                   // empty: Slurm's own names, slurm-%j.out, of arrays slurm-%A_%a.out
  std::vector<std::string> more_flags;  // of sbatch, each with its dashes: "--mail-type=END"
  std::string directory;                // where it runs, shared by all nodes
  bool exclusive = false;
  bool launcher = true;    // else srun starts the ranks itself, and nobody restarts them
  int max_requeues = 100;  // a run that never gets anywhere comes to an end
};

// What --output stands for, as a pattern of Slurm's.
std::string slurm_output(const SlurmOptions& options);

// In the job's arguments "%a" is the number of the array's task, where there is an array. Throws ConfigError
// where a value cannot be written into a script. A job with words of its own runs them once, on one node, and
// is not put back into the queue.
std::string slurm_script(const Job& job, const SlurmOptions& options);

}  // namespace tandem::cluster
