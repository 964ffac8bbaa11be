// What this machine has of all that a run needs, as this process sees it: within its container, its limits
// and its network.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/doctor/disk_speed.h"
#include "tandem/doctor/interfaces.h"

namespace tandem::doctor {

struct NumaNode {
  std::string cpus;  // "0-31,64-95"
  int64_t memory_bytes = 0;
};

struct Gpu {
  std::string name;
  int64_t memory_bytes = 0;
};

struct Limits {  // of this process; none: no limit
  std::optional<int64_t> open_files, locked_bytes, processes, file_bytes;
};

struct Node {
  std::string name, kernel, version, program_isa, best_isa;
  std::string processor;
  int cores = 0;                     // that this process may use
  int cores_there = 0;               // of the machine
  std::optional<double> core_quota;  // of its control group
  std::string governor;              // how the frequency is chosen; empty: not told
  std::vector<NumaNode> numa;
  int64_t memory_bytes = 0, available_bytes = 0, swap_used_bytes = 0;
  int64_t shm_bytes = 0, shm_free_bytes = 0;  // of /dev/shm
  std::vector<Gpu> gpus;                      // that CUDA sees
  int gpus_on_bus = 0;                        // NVIDIA's, whether or not a driver runs them
  bool has_cuda = false;                      // whether this program can use them
  std::string driver;                         // of NVIDIA's; empty: none
  std::string folder;                         // whose disk was tried
  int64_t disk_free_bytes = 0;
  DiskSpeed disk;
  Limits limits;
  std::string clock_source;
  bool clock_synchronised = false;
  double unix_s = 0;
  std::vector<Interface> interfaces;
  std::vector<RdmaDevice> rdma;
  Choice choice;
  bool name_resolves = false;
  std::string nccl_interface, gloo_interface;  // as the environment has them
};

struct Roots {  // other ones for tests
  std::filesystem::path proc = "/proc", sys = "/sys";
};

// All but what the backends know (ISA, GPUs), the disk and the chosen interface.
Node read_node(const Roots& roots = {});

nlohmann::ordered_json to_json(const Node& node);
std::string node_text(const Node& node);  // as a person reads it, a line for each subject

}  // namespace tandem::doctor
