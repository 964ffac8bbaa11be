// Jobs on a Kubernetes cluster: submitted, looked at, read and ended through its API server.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/cluster/kubernetes_client.h"

namespace tandem::cluster {

struct KubernetesJob {
  std::string space, name;
  bool is_set = false;  // a JobSet
};

// The objects of kubernetes_objects, all or none of them: where one is refused, those before it go again. The
// others belong to the job, and go when it goes. ConfigError where there is a job of this name already.
void submit_to_kubernetes(KubernetesClient& client, const std::vector<nlohmann::ordered_json>& objects);

struct PodState {
  std::string name, id;
  int index = -1;
  std::string phase;   // "Pending", "Running", "Succeeded", "Failed"
  std::string reason;  // why it waits, or how it ended
  std::string node;
  std::string created;
  bool going = false;  // it was told to end
};

struct KubernetesState {
  std::string state;  // "Pending", "Running", "Complete", "Failed"; empty: there is no such job
  std::string reason;
  int succeeded = 0, failed = 0;  // pods
  std::vector<PodState> pods;     // by index, the newest last
};
KubernetesState kubernetes_state(KubernetesClient& client, const KubernetesJob& job);

// What the objects of the API server mean; apart, for tests.
KubernetesState state_of(const nlohmann::ordered_json& job, const nlohmann::ordered_json& pods);

// The log of the newest pod with this index. With `follow` goes on with the pods that replace it, until the
// job has ended; else one pod's. `tell` hears why there is nothing to read yet, once for each reason.
void read_kubernetes_log(KubernetesClient& client, const KubernetesJob& job, int index, bool follow,
                         const std::function<bool(std::string_view)>& take,
                         const std::function<void(const std::string&)>& tell);

// False where there was none. Pods have their grace period to save; the job itself goes at once, or when the
// last of them is gone.
enum class Going { AtOnce, AfterItsPods };
bool cancel_in_kubernetes(KubernetesClient& client, const KubernetesJob& job, Going going = Going::AtOnce);

}  // namespace tandem::cluster
