#include "tandem/cli/submitted.h"

#include <fmt/format.h>

#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/base/utf8.h"
#include "tandem/cluster/slurm_queue.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::ordered_json;

Submitted with_task(cluster::SubmittedJob job, const std::string& number_or_name) {
  const bool is_task = number_or_name.starts_with(job.id + "_");
  return {job, is_task ? number_or_name : job.id};
}

Json slurm_status(const Submitted& job) {
  Json tasks = Json::array();
  for (const cluster::SlurmTask& task : cluster::slurm_tasks(job.id))
    tasks.push_back({{"id", task.id},
                     {"state", task.state},
                     {"reason", task.reason},
                     {"nodes", task.nodes},
                     {"elapsed", task.elapsed},
                     {"limit", task.limit},
                     {"start", task.start}});
  const bool gone = tasks.empty();
  return {{"state", gone ? "" : tasks[0]["state"].get<std::string>()},
          {"reason", gone ? "" : tasks[0]["reason"].get<std::string>()},
          {"tasks", tasks}};
}

Json kubernetes_status(const Submitted& job) {
  const auto client = cluster_of(job);
  const cluster::KubernetesState state = cluster::kubernetes_state(*client, job.kubernetes());
  Json pods = Json::array();
  for (const cluster::PodState& pod : state.pods)
    pods.push_back({{"name", pod.name},
                    {"index", pod.index},
                    {"phase", pod.going ? "Terminating" : pod.phase},
                    {"reason", pod.reason},
                    {"node", pod.node},
                    {"created", pod.created}});
  return {{"state", state.state},
          {"reason", state.reason},
          {"succeeded", state.succeeded},
          {"failed", state.failed},
          {"pods", pods}};
}

std::string in_brackets(const std::string& reason) {
  return reason.empty() || reason == "None" ? "" : fmt::format(" ({})", printable(reason));
}

std::string text(const Json& json, const char* key) { return json[key].get<std::string>(); }

}  // namespace

std::string Submitted::name() const { return "job " + id; }

std::string Submitted::run() const {
  if (job.run.empty() || job.directory.empty()) return "";
  std::string folder = job.run;
  const size_t underscore = id.find('_');
  for (size_t at; (at = folder.find("%a")) != std::string::npos;) {
    if (underscore == std::string::npos) return "";
    folder.replace(at, 2, id.substr(underscore + 1));
  }
  const std::filesystem::path path = std::filesystem::path(job.directory) / folder;
  std::error_code none;
  return std::filesystem::is_directory(path, none) ? path.string() : "";
}

cluster::KubernetesJob Submitted::kubernetes() const {
  return {job.id.substr(0, job.id.find('/')), job.name, job.object == "JobSet"};
}

Submitted submitted(const std::string& number_or_name) {
  return with_task(cluster::JobBook::of_user().find(number_or_name), number_or_name);
}

std::optional<Submitted> submitted_if_any(const std::string& number_or_name) {
  const auto job = cluster::JobBook::of_user().look_for(number_or_name);
  return job ? std::optional(with_task(*job, number_or_name)) : std::nullopt;
}

std::unique_ptr<cluster::KubernetesClient> cluster_of(const Submitted& job) {
  return std::make_unique<cluster::KubernetesClient>(cluster::find_kubernetes(job.job.context));
}

Json job_status(const Submitted& job) {
  Json status = {{"job", job.id},
                 {"kind", job.job.kind},
                 {"name", job.job.name},
                 {"config", job.job.config},
                 {"submitted", job.job.time}};
  status.update(job.on_kubernetes() ? kubernetes_status(job) : slurm_status(job));
  status["run"] = job.run().empty() ? Json(nullptr) : Json(job.run());
  return status;
}

bool job_has_ended(const Json& status) {
  const std::string state = text(status, "state");
  return state.empty() || state == "Complete" || state == "Failed";
}

std::string job_status_text(const Json& status) {
  const std::string state = text(status, "state");
  std::string lines = fmt::format("job {} ({}) on {}: {}{}\n", text(status, "job"),
                                  printable(text(status, "name")), text(status, "kind"),
                                  state.empty() ? "has ended" : state, in_brackets(text(status, "reason")));
  for (const Json& task : status.value("tasks", Json::array())) {
    const std::string nodes = text(task, "nodes");
    lines += fmt::format("  {} {}{}, {} of {}{}\n", text(task, "id"), text(task, "state"),
                         nodes.empty() ? "" : " on " + nodes, text(task, "elapsed"), text(task, "limit"),
                         in_brackets(text(task, "reason")));
  }
  for (const Json& pod : status.value("pods", Json::array()))
    lines += fmt::format("  {} {}{}{}\n", text(pod, "name"), text(pod, "phase"),
                         text(pod, "node").empty() ? "" : " on " + text(pod, "node"),
                         in_brackets(text(pod, "reason")));
  return lines;
}

}  // namespace tandem::cli
