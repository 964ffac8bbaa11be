#include "tandem/cluster/skypilot_task.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/cluster/kubernetes_manifest.h"
#include "tandem/cluster/quoting.h"
#include "tandem/cluster/yaml_text.h"

namespace tandem::cluster {
namespace {

constexpr const char* kPackage = "/tmp/tandem.deb";
constexpr const char* kBucket = "/runs";

std::string run_script(const Job& job) {
  std::string flags = fmt::format("--nproc-per-node {} --max-restarts {} --grace {}", job.ranks_per_node,
                                  job.max_restarts, job.grace_s);
  std::string script;
  if (job.nodes > 1) {
    script = "head=$(echo \"$SKYPILOT_NODE_IPS\" | head -n 1)\n";
    flags +=
        " --nnodes \"$SKYPILOT_NUM_NODES\" --node-rank \"$SKYPILOT_NODE_RANK\" --rdzv-endpoint "
        "\"$head:29400\"";
  }
  script += fmt::format("exec {} launch {} \\\n  train {}", shell_word(job.program, "--program"), flags,
                        shell_word(job.config, "CONFIG"));
  for (const std::string& argument : job.arguments) script += " " + shell_word(argument, "--set");
  return script + "\n";
}

}  // namespace

std::string skypilot_task(const Job& job, const SkyPilotOptions& options) {
  if (job.gpus_per_node > 0 && options.accelerator.empty())
    throw ConfigError("--skypilot: --gpus-per-node {} needs --accelerator NAME, such as H100",
                      job.gpus_per_node);
  nlohmann::ordered_json task = {{"name", kubernetes_name(job.name)}};
  nlohmann::ordered_json resources = nlohmann::ordered_json::object();
  if (!options.infra.empty()) resources["infra"] = options.infra;
  if (!options.accelerator.empty())
    resources["accelerators"] = fmt::format("{}:{}", options.accelerator, std::max(1, job.gpus_per_node));
  if (job.cpus_per_node > 0) resources["cpus"] = fmt::format("{}+", job.cpus_per_node);
  if (!job.memory_per_node.empty()) resources["memory"] = job.memory_per_node;
  resources["use_spot"] = options.spot;
  task["resources"] = resources;
  task["num_nodes"] = job.nodes;
  task["workdir"] = ".";
  if (job.nodes > 1) task["secrets"] = {{"TANDEM_SECRET", nullptr}};
  nlohmann::ordered_json mounts = nlohmann::ordered_json::object();
  if (!options.package.empty()) mounts[kPackage] = options.package;
  if (!options.bucket.empty()) mounts[kBucket] = {{"source", options.bucket}, {"mode", "MOUNT_CACHED"}};
  if (!mounts.empty()) task["file_mounts"] = mounts;
  if (!options.package.empty())
    task["setup"] = fmt::format("sudo apt-get update\nsudo apt-get install -y {}\n", kPackage);
  Job placed = job;
  if (!options.bucket.empty())
    placed.arguments.insert(placed.arguments.end(),
                            {"--run-dir", fmt::format("{}/{}", kBucket, kubernetes_name(job.name))});
  task["run"] = run_script(placed);
  return yaml_text(task);
}

}  // namespace tandem::cluster
