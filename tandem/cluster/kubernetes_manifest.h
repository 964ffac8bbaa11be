// A run as objects of Kubernetes: an Indexed Job whose pods are the nodes, a headless service by which they
// find each other, and the config as a ConfigMap. Or a JobSet, which has such a service of its own, and makes
// all pods anew where one fails.
//
// A pod that fails or is evicted comes back with its index and joins the launch again; what Kubernetes does
// to a pod itself (DisruptionTarget) does not count as a failure. Pods run as a user without rights, on a
// root file system that cannot be written to.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tandem/cluster/job.h"

namespace tandem::cluster {

struct KubernetesOptions {
  std::string space = "default";  // the namespace
  std::string image;              // needed
  std::string config_text;        // what the ConfigMap holds
  std::string secret;  // a Secret whose key `secret` is 32 or more hex digits; needed for several nodes
  std::vector<std::string> claims;       // NAME:PATH, a PersistentVolumeClaim and where it is mounted
  std::vector<std::string> environment;  // NAME of a Secret whose keys become variables: credentials of S3
  std::string shared_memory = "8Gi";     // of /dev/shm, for ranks of one pod; empty: the container's 64 MB
  std::vector<std::string> selectors;    // KEY=VALUE of a node's labels
  std::vector<std::string> tolerations;  // KEY[=VALUE][:EFFECT]
  std::vector<std::string> resources;    // NAME=QUANTITY: vpc.amazonaws.com/efa=4
  std::string close, spread;             // a node label whose equal values pods seek, or avoid
  std::string service_account;
  int user = 65532;                 // and group, that pods run as: nobody's, as distroless images have it
  std::string directory = "/work";  // where it runs
  int retries = 100;                // pods that may fail; of a JobSet: times to begin anew
  bool jobset = false;
  std::string new_secret;  // hex digits: `secret` does not exist yet, and is made with the others
};

// The objects, the job last, which is alone where the job has words of its own. Throws ConfigError where a
// value is none that Kubernetes takes.
std::vector<nlohmann::ordered_json> kubernetes_objects(const Job& job, const KubernetesOptions& options);

// The same as documents of YAML.
std::string kubernetes_manifest(const Job& job, const KubernetesOptions& options);

// A name of Kubernetes': small letters, digits and dashes, at most 52 of them, so that pods can be numbered.
std::string kubernetes_name(const std::string& name);

}  // namespace tandem::cluster
