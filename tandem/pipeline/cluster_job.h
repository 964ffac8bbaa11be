// A step as a job of a cluster's. All that is to be known of it stands in one note in the step's home, which
// runner and job both see: the folder of a pipeline whose steps run on a cluster lies on a file system that
// its nodes share.
//
// The runner writes the note and starts an attendant, a process of its own like that of any other step, which
// submits the job, waits for it and ends as it does (`tandem pipeline attend NOTE`). On the node
// `tandem pipeline step NOTE` runs the step's words, which no shell sees on the way, and leaves how it ended
// beside the note. A runner that was killed leaves its jobs alone: the next one finds them by their notes and
// waits for them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tandem/pipeline/record.h"

namespace tandem::pipeline {

struct JobNote {
  Where where = Where::Slurm;
  std::string name;  // of the job: of this step, this key and this attempt alone
  std::string id;    // Slurm's number; empty: perhaps not submitted yet
  int64_t attempt = 0;
  std::string folder;                    // where the words run
  std::vector<std::string> command;      // the step's words
  std::vector<std::string> environment;  // on top of the node's
  std::string output;                    // empty: none
  std::string log;
  bool captures = false;  // what it prints is its output
  bool keeps = false;     // what a try before it left of its output is gone on from, not removed
  std::string script;     // for sbatch
  Json object;            // for Kubernetes' API server
  std::string context;    // of the kubeconfig
};

inline constexpr const char* kJobNote = "job.json";

// Who the pods of a step run as.
int64_t user_of(const ClusterSpec& spec);

JobNote make_note(const Plan& plan, size_t step, int64_t attempt);
std::optional<JobNote> read_note(const std::filesystem::path& file);
void write_note(const std::filesystem::path& file, const JobNote& note);

struct JobEnd {
  int code = 0;
  std::string host;
};
// As the node has left it.
std::optional<JobEnd> read_end(const std::filesystem::path& note_file, const JobNote& note);

// What has become of a job whose runner is gone.
enum class Fate { Alive, Ended, Gone };
Fate fate_of(const std::filesystem::path& note_file, const JobNote& note);

// In the runner's stead: submits it unless it is there already, waits, and gives its exit code. SIGTERM and
// SIGINT cancel it.
int attend(const std::filesystem::path& note_file);

// On the node: runs the words. SIGTERM and SIGINT are passed on.
int run_job(const std::filesystem::path& note_file);

}  // namespace tandem::pipeline
