#include "tandem/cluster/cloud_init.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/cluster/quoting.h"
#include "tandem/cluster/yaml_text.h"

namespace tandem::cluster {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kConfig = "/etc/tandem/config.yaml";
constexpr const char* kScript = "/etc/tandem/run";

std::string script(const Job& job) {
  std::string text = fmt::format(
      "#!/bin/bash\nexec {} launch --nproc-per-node {} --max-restarts {} --grace {} \\\n  train {}",
      shell_word(job.program, "--program"), job.ranks_per_node, job.max_restarts, job.grace_s, kConfig);
  for (const std::string& argument : job.arguments) text += " " + shell_word(argument, "--set");
  return text + "\n";
}

// 2, 3 and 4 are what tandem says of a config, of memory and of data: another start would change nothing.
std::string service(const Job& job) {
  return fmt::format(
      "[Unit]\nDescription=tandem train\nAfter=network-online.target\nWants=network-online.target\n\n"
      "[Service]\nDynamicUser=yes\nStateDirectory=tandem\nWorkingDirectory=/var/lib/tandem\n"
      "ExecStart=/bin/bash {}\nKillMode=mixed\nTimeoutStopSec={}\nRestart=on-failure\nRestartSec=10\n"
      "RestartPreventExitStatus=2 3 4\nSuccessExitStatus=75\n\n[Install]\nWantedBy=multi-user.target\n",
      kScript, job.grace_s + 15);
}

Json file(const std::string& path, const std::string& mode, const std::string& content) {
  return {{"path", path}, {"permissions", mode}, {"content", content}};
}

}  // namespace

std::string cloud_init(const Job& job, const CloudInitOptions& options) {
  if (job.nodes > 1)
    throw ConfigError(
        "--cloud-init: is for one machine, found --nodes {}; --skypilot, --slurm and --kubernetes have "
        "several",
        job.nodes);
  Json tree = {{"write_files",
                Json::array({file(kConfig, "0644", options.config_text), file(kScript, "0755", script(job)),
                             file("/etc/systemd/system/tandem.service", "0644", service(job))})}};
  Json commands = Json::array();
  if (!options.package.empty()) {
    commands.push_back({"curl", "--fail", "--silent", "--show-error", "--location", "--output",
                        "/tmp/tandem.deb", options.package});
    commands.push_back({"apt-get", "install", "--yes", "/tmp/tandem.deb"});
    tree["package_update"] = true;
    tree["packages"] = {"ca-certificates", "curl"};
  }
  commands.push_back({"systemctl", "daemon-reload"});
  commands.push_back({"systemctl", "enable", "--now", "tandem.service"});
  tree["runcmd"] = commands;
  return "#cloud-config\n" + yaml_text(tree);
}

}  // namespace tandem::cluster
