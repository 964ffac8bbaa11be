// Jobs that tandem submit has handed to a cluster, as `status`, `logs` and `cancel` speak of them.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tandem/cluster/job_book.h"
#include "tandem/cluster/kubernetes_jobs.h"

namespace tandem::cli {

struct Submitted {
  cluster::SubmittedJob job;
  std::string id;  // of a task of an array, where one was named

  bool on_kubernetes() const { return job.kind == "kubernetes"; }
  std::string name() const;  // "job 123", "job default/run"
  std::string run() const;   // the run's directory, if it can be seen from here; else empty
  cluster::KubernetesJob kubernetes() const;
};

Submitted submitted(const std::string& number_or_name);  // ConfigError where there is none
std::optional<Submitted> submitted_if_any(const std::string& number_or_name);

std::unique_ptr<cluster::KubernetesClient> cluster_of(const Submitted& job);

// How it stands, in the cluster's words: state, reason, and its pods or tasks. The state is empty where the
// cluster has forgotten it.
nlohmann::ordered_json job_status(const Submitted& job);
std::string job_status_text(const nlohmann::ordered_json& status);
bool job_has_ended(const nlohmann::ordered_json& status);

}  // namespace tandem::cli
