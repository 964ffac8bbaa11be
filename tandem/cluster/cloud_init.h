// A run as user data of a plain virtual machine (cloud-init): a service that starts with the machine, is told
// when it goes, and goes on where it was when it starts again.
#pragma once

#include <string>

#include "tandem/cluster/job.h"

namespace tandem::cluster {

struct CloudInitOptions {
  std::string config_text;
  std::string package;  // URL of a .deb of tandem's; empty: the image has it
};

// ConfigError for several nodes: machines that do not know of each other.
std::string cloud_init(const Job& job, const CloudInitOptions& options);

}  // namespace tandem::cluster
