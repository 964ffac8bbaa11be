// What was submitted from here, so that `tandem logs` and `tandem cancel` need no more than a job's number or
// name: a file for each, in $XDG_STATE_HOME/tandem/jobs or ~/.local/state/tandem/jobs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace tandem::cluster {

struct SubmittedJob {
  std::string kind;  // "slurm" or "kubernetes"
  std::string id;    // Slurm's number; of Kubernetes NAMESPACE/NAME
  std::string name, config, directory;
  std::string output;   // a pattern of Slurm's
  std::string time;     // ISO 8601
  std::string run;      // its directory, as seen from `directory`; where `%a` is in it, an array's
  std::string context;  // of the kubeconfig; empty: a pod's own cluster
  std::string object;   // "Job" or "JobSet"
};

class JobBook {
 public:
  // Throws ConfigError where neither XDG_STATE_HOME nor HOME is set.
  static JobBook of_user();
  explicit JobBook(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void add(const SubmittedJob& job) const;  // and forgets the oldest of more than a thousand

  // By number ("123", or "123_4" of an array) or by name, of which the newest counts. ConfigError where there
  // is none, which names the last ones.
  SubmittedJob find(const std::string& number_or_name) const;
  std::optional<SubmittedJob> look_for(const std::string& number_or_name) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace tandem::cluster
