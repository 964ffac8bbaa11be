// A run as a task of SkyPilot's, which rents machines where they are to be had and, of spot machines that are
// taken away, others.
#pragma once

#include <string>

#include "tandem/cluster/job.h"

namespace tandem::cluster {

struct SkyPilotOptions {
  std::string accelerator;  // "H100"; how many is the job's gpus_per_node
  std::string infra;        // "aws", "gcp/us-central1"; empty: wherever it is cheapest
  bool spot = false;
  std::string bucket;   // s3://... that runs are written to; empty: the machine's disk, which goes with it
  std::string package;  // a .deb of tandem's, copied to each machine; empty: tandem is there
};

// `sky jobs launch` takes it. Several nodes need TANDEM_SECRET, which it asks for by name.
std::string skypilot_task(const Job& job, const SkyPilotOptions& options);

}  // namespace tandem::cluster
