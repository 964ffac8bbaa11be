#include "tandem/cluster/kubernetes_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/utf8.h"

namespace tandem::cluster {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kIndex = "batch.kubernetes.io/job-completion-index";
constexpr std::chrono::milliseconds kPause{500};

// Where objects of a kind are: "/apis/batch/v1/namespaces/default/jobs".
std::string path_of(const std::string& version, const std::string& kind, const std::string& space) {
  static const std::map<std::string, std::string> kPlurals = {
      {"ConfigMap", "configmaps"}, {"Secret", "secrets"}, {"Service", "services"}, {"Job", "jobs"},
      {"JobSet", "jobsets"},       {"Pod", "pods"}};
  return fmt::format("{}/{}/namespaces/{}/{}", version.find('/') == std::string::npos ? "/api" : "/apis",
                     version, space, kPlurals.at(kind));
}

std::string path_of(const Json& object) {
  return path_of(object["apiVersion"], object["kind"], object["metadata"]["namespace"]);
}

std::string name_of(const Json& object) { return object["metadata"]["name"]; }

std::string path_of(const KubernetesJob& job) {
  return job.is_set ? path_of("jobset.x-k8s.io/v1alpha2", "JobSet", job.space) + "/" + job.name
                    : path_of("batch/v1", "Job", job.space) + "/" + job.name;
}

std::string text_at(const Json& object, std::initializer_list<const char*> keys) {
  const Json* at = &object;
  for (const char* key : keys) {
    if (!at->is_object() || !at->contains(key)) return "";
    at = &(*at)[key];
  }
  return at->is_string() ? at->get<std::string>() : "";
}

int number_at(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_number_integer()
             ? object[key].get<int>()
             : 0;
}

// A part that may be missing.
const Json& part(const Json& object, const char* key) {
  static const Json kNone = Json::object();
  return object.is_object() && object.contains(key) ? object[key] : kNone;
}

// Why a container waits ("ImagePullBackOff: ...") or how it ended ("exit code 1").
std::string reason_of_container(const Json& status) {
  for (const Json& container : part(status, "containerStatuses")) {
    const Json& state = part(container, "state");
    const Json& waiting = part(state, "waiting");
    if (const std::string reason = text_at(waiting, {"reason"}); !reason.empty()) {
      const std::string message = text_at(waiting, {"message"});
      return message.empty() ? reason : fmt::format("{}: {}", reason, message);
    }
    if (const Json& ended = part(state, "terminated");
        ended.contains("exitCode") && number_at(ended, "exitCode") != 0)
      return fmt::format("exit code {}", number_at(ended, "exitCode"));
  }
  return "";
}

PodState pod_of(const Json& pod) {
  const Json& status = part(pod, "status");
  PodState state;
  state.name = text_at(pod, {"metadata", "name"});
  state.id = text_at(pod, {"metadata", "uid"});
  state.created = text_at(pod, {"metadata", "creationTimestamp"});
  state.going = !text_at(pod, {"metadata", "deletionTimestamp"}).empty();
  state.node = text_at(pod, {"spec", "nodeName"});
  state.phase = text_at(status, {"phase"});
  const std::string index = text_at(pod, {"metadata", "annotations", kIndex});
  if (!index.empty() && index.find_first_not_of("0123456789") == std::string::npos && index.size() < 9)
    state.index = std::stoi(index);
  state.reason = reason_of_container(status);
  if (state.reason.empty()) state.reason = text_at(status, {"message"});
  for (const Json& condition : part(status, "conditions")) {
    const bool unplaced =
        text_at(condition, {"type"}) == "PodScheduled" && text_at(condition, {"status"}) == "False";
    if (unplaced && state.reason.empty()) state.reason = text_at(condition, {"message"});
  }
  for (char& c : state.reason) c = c == '\n' ? ' ' : c;
  return state;
}

Json list_pods(KubernetesClient& client, const KubernetesJob& job) {
  const auto answer = client.get(path_of("v1", "Pod", job.space) +
                                 fmt::format("?labelSelector=app.kubernetes.io/instance%3D{}", job.name));
  if (!answer.good()) client.refuse("pods of " + job.name, answer);
  return answer.body;
}

// A thing of ours that an earlier job of this name has left behind makes room; anybody else's stays.
bool make_room(KubernetesClient& client, const Json& object) {
  const std::string path = path_of(object) + "/" + name_of(object);
  const auto there = client.get(path);
  if (!there.good() || text_at(there.body, {"metadata", "labels", "app.kubernetes.io/name"}) != "tandem")
    return false;
  return client.remove(path, {{"propagationPolicy", "Background"}}).good();
}

const PodState* newest(const KubernetesState& state, int index) {
  const PodState* found = nullptr;
  for (const PodState& pod : state.pods) {
    if (pod.index == index || (pod.index < 0 && index == 0)) found = &pod;
  }
  return found;
}

bool has_ended(const KubernetesState& state) {
  return state.state.empty() || state.state == "Complete" || state.state == "Failed";
}

}  // namespace

void submit_to_kubernetes(KubernetesClient& client, const std::vector<Json>& objects) {
  const Json& job = objects.back();
  const std::string what = fmt::format("{} {}", job["kind"].get<std::string>(), name_of(job));
  const std::string job_path = path_of(job) + "/" + name_of(job);
  const auto before = client.get(job_path);
  if (before.good())
    throw ConfigError(
        "{}: is there already, in the namespace {}; tandem cancel {} ends it, or give this one another "
        "--name",
        what, job["metadata"]["namespace"].get<std::string>(), name_of(job));
  if (before.status != 404) client.refuse(what, before);
  std::vector<std::string> made;
  const auto undo = [&] {
    for (const std::string& path : made) client.remove(path, {{"propagationPolicy", "Background"}});
  };
  std::string id;
  for (const Json& object : objects) {
    // Servers that know fewer fields say so instead of dropping them, from version 1.25 on.
    const std::string path = path_of(object) + "?fieldValidation=Strict";
    auto answer = client.create(path, object);
    if (answer.status == 409 && &object != &objects.back() && make_room(client, object))
      answer = client.create(path, object);
    if (!answer.good()) {
      undo();
      client.refuse(fmt::format("{} {}", object["kind"].get<std::string>(), name_of(object)), answer);
    }
    made.push_back(path_of(object) + "/" + name_of(object));
    id = text_at(answer.body, {"metadata", "uid"});
  }
  const Json owner = {
      {"apiVersion", job["apiVersion"]}, {"kind", job["kind"]}, {"name", name_of(job)}, {"uid", id}};
  const Json belongs = {{"metadata", {{"ownerReferences", Json::array({owner})}}}};
  for (size_t i = 0; i + 1 < made.size(); ++i) {
    const auto answer = client.merge(made[i], belongs);
    if (answer.good()) continue;
    std::reverse(made.begin(), made.end());
    undo();
    client.refuse(what, answer);
  }
}

KubernetesState state_of(const Json& job, const Json& pods) {
  KubernetesState state;
  state.state = "Pending";
  const Json& status = part(job, "status");
  state.succeeded = number_at(status, "succeeded");
  state.failed = number_at(status, "failed");
  for (const Json& pod : part(pods, "items")) state.pods.push_back(pod_of(pod));
  std::stable_sort(state.pods.begin(), state.pods.end(), [](const PodState& a, const PodState& b) {
    return std::tie(a.index, a.created) < std::tie(b.index, b.created);
  });
  if (std::any_of(state.pods.begin(), state.pods.end(),
                  [](const auto& pod) { return pod.phase == "Running"; }))
    state.state = "Running";
  for (const Json& condition : part(status, "conditions")) {
    const std::string type = text_at(condition, {"type"});
    if (text_at(condition, {"status"}) != "True") continue;
    if (type == "Complete" || type == "Completed") state.state = "Complete";
    if (type == "Failed") {
      state.state = "Failed";
      state.reason = fmt::format("{}: {}", text_at(condition, {"reason"}), text_at(condition, {"message"}));
    }
  }
  return state;
}

KubernetesState kubernetes_state(KubernetesClient& client, const KubernetesJob& job) {
  const auto answer = client.get(path_of(job));
  if (answer.status == 404) return {};
  if (!answer.good()) client.refuse(job.name, answer);
  return state_of(answer.body, list_pods(client, job));
}

void read_kubernetes_log(KubernetesClient& client, const KubernetesJob& job, int index, bool follow,
                         const std::function<bool(std::string_view)>& take,
                         const std::function<void(const std::string&)>& tell) {
  std::string reading, told;  // the pod's id, and what was said of it
  int64_t shown = 0;          // of its bytes: a connection that was cut begins anew
  bool wanted = true;
  for (;;) {
    const KubernetesState state = kubernetes_state(client, job);
    const PodState* pod = newest(state, index);
    const bool readable = pod != nullptr && pod->phase != "Pending";
    const bool ended = has_ended(state);
    if (readable) {
      if (pod->id != reading) shown = 0;
      reading = pod->id;
      int64_t skip = shown;
      const auto answer =
          client.stream(fmt::format("{}/{}/log?container=tandem{}", path_of("v1", "Pod", job.space),
                                    pod->name, follow ? "&follow=true" : ""),
                        [&](std::string_view bytes) {
                          const auto known = std::min<int64_t>(skip, static_cast<int64_t>(bytes.size()));
                          skip -= known;
                          bytes.remove_prefix(static_cast<size_t>(known));
                          shown += static_cast<int64_t>(bytes.size());
                          return wanted = bytes.empty() || take(bytes);
                        });
      // A pod that goes takes its log along.
      if (!answer.good() && answer.status != 404 && answer.status != 400) client.refuse(pod->name, answer);
    } else if (pod != nullptr || !ended) {
      const std::string why = pod == nullptr ? "has no pod with this number yet"
                              : pod->reason.empty()
                                  ? fmt::format("waits for pod {}", pod->name)
                                  : fmt::format("waits for pod {}: {}", pod->name, printable(pod->reason));
      if (why != told) tell(why);
      told = why;
    }
    if (!follow || ended || !wanted) return;
    std::this_thread::sleep_for(kPause);
  }
}

bool cancel_in_kubernetes(KubernetesClient& client, const KubernetesJob& job, Going going) {
  const auto answer = client.remove(
      path_of(job), {{"propagationPolicy", going == Going::AtOnce ? "Background" : "Foreground"}});
  if (answer.status == 404) return false;
  if (!answer.good()) client.refuse(job.name, answer);
  return true;
}

}  // namespace tandem::cluster
