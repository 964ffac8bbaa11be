// The variables by which launchers tell a process who it is.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/comm/connect.h"
#include "tandem/comm/tcp/own_address.h"

namespace tandem {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

int number(const char* name, const std::string& text, int min) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min) {
    throw ConfigError("environment variable {}: expected a whole number from {}, found '{}'", name, min,
                      text);
  }
  return value;
}

int required(const char* name, const char* because_of, int min) {
  const auto text = variable(name);
  if (!text)
    throw ConfigError("environment variable {}: missing, though {} is set; a launcher sets both", name,
                      because_of);
  return number(name, *text, min);
}

int optional(const char* name, int fallback, int min = 0) {
  const auto text = name ? variable(name) : std::nullopt;
  return text ? number(name, *text, min) : fallback;
}

struct Names {  // of one launcher; null where it has no such variable
  const char *rank, *world_size, *local_rank, *local_world_size, *node_rank, *restart_count;
};
constexpr Names kTorchrun{
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT"};
constexpr Names kSlurm{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
                       nullptr,        "SLURM_NODEID", "SLURM_RESTART_COUNT"};
constexpr Names kOpenMpi{"OMPI_COMM_WORLD_RANK",
                         "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE",
                         nullptr,
                         nullptr};
constexpr Names kMpich{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, nullptr};
constexpr const char* kPmix = "PMIX_RANK";  // says nothing of the world's size

// Whose variables count. mpirun in a job of Slurm's leaves its processes the variables of the job, or of the
// step that started it on a node, which are not theirs: MPI's go first. But srun --mpi=pmi2 sets PMI_RANK
// beside its own, of which only its own know the ranks of a node.
const Names* launcher() {
  if (variable(kTorchrun.rank)) return &kTorchrun;
  if (variable(kOpenMpi.rank)) return &kOpenMpi;
  if (variable(kMpich.rank) && variable(kMpich.local_rank)) return &kMpich;
  if (variable(kSlurm.rank)) return &kSlurm;
  if (variable(kMpich.rank)) return &kMpich;
  return nullptr;
}

// Slurm writes tasks per node as "4(x2),3": nodes 0 and 1 have four, node 2 has three.
int slurm_tasks_on_node(int node) {
  constexpr const char* kName = "SLURM_STEP_TASKS_PER_NODE";
  const auto text = variable(kName);
  if (!text) return 1;
  for (size_t at = 0; at < text->size();) {
    const size_t comma = std::min(text->find(',', at), text->size());
    const std::string entry = text->substr(at, comma - at);
    const size_t times = entry.find("(x");
    const int tasks = number(kName, entry.substr(0, times), 1);
    node -=
        times == std::string::npos ? 1 : number(kName, entry.substr(times + 2, entry.size() - times - 3), 1);
    if (node < 0) return tasks;
    at = comma + 1;
  }
  return 1;
}

Hosts hosts_of(const WorldInfo& world, bool told) {
  if (means_loopback(world.master_addr)) return Hosts::One;
  if (!told) return Hosts::Unknown;
  return world.local_world_size == world.world_size ? Hosts::One : Hosts::Several;
}

Transport transport(const std::string& name) {
  if (name == "auto") return Transport::Auto;
  if (name == "shm") return Transport::Shm;
  if (name == "tcp") return Transport::Tcp;
  if (name == "gloo") {
    throw ConfigError(
        "environment variable TANDEM_TRANSPORT: gloo is no longer there; use tcp, which goes the same way");
  }
  throw ConfigError("environment variable TANDEM_TRANSPORT: expected auto, shm or tcp, found '{}'", name);
}

}  // namespace

WorldInfo read_world() {
  WorldInfo world;
  const Names* names = launcher();
  if (!names) {
    if (variable(kTorchrun.world_size)) required(kTorchrun.rank, kTorchrun.world_size, 0);
    // Without this, each of many processes would take itself for the only one.
    if (variable(kPmix)) {
      throw ConfigError(
          "environment variable {}: is set, and none that tells the number of ranks; start them with mpirun, "
          "srun or tandem launch, or set RANK, WORLD_SIZE and LOCAL_RANK",
          kPmix);
    }
    return world;
  }
  world.rank = required(names->rank, names->world_size, 0);
  world.world_size = required(names->world_size, names->rank, 1);
  if (world.rank >= world.world_size) {
    throw ConfigError("environment variable {}: expected less than {} ({}), found {}", names->rank,
                      world.world_size, names->world_size, world.rank);
  }
  world.local_rank = optional(names->local_rank, world.rank);
  world.node_rank = optional(names->node_rank, 0);
  world.local_world_size = names == &kSlurm ? slurm_tasks_on_node(world.node_rank)
                                            : optional(names->local_world_size, world.world_size, 1);
  world.restart_count = optional(names->restart_count, 0);
  if (const auto address = variable("MASTER_ADDR")) {
    world.master_addr = *address;
  } else if (const auto launch_node = variable("SLURM_LAUNCH_NODE_IPADDR"); launch_node && names == &kSlurm) {
    world.master_addr = *launch_node;
  } else if (world.local_world_size < world.world_size && (names == &kOpenMpi || names == &kMpich)) {
    throw ConfigError(
        "environment variable MASTER_ADDR: missing, though {} of {} ranks are on this host; name rank 0's: "
        "mpirun -x MASTER_ADDR=HOST (Open MPI) or -env MASTER_ADDR HOST (MPICH)",
        world.local_world_size, world.world_size);
  }
  world.master_port = optional("MASTER_PORT", world.master_port, 1);
  // torchrun's own agent listens at that port for its workers; the one above it is ours.
  if (variable("TORCHELASTIC_USE_AGENT_STORE") == "True") ++world.master_port;
  if (world.master_port > 65535) {
    throw ConfigError("environment variable MASTER_PORT: expected a port from 1 to 65535, found {}",
                      world.master_port);
  }
  if (const auto id = variable("TORCHELASTIC_RUN_ID")) world.run_id = *id;
  world.hosts = hosts_of(world, names == &kSlurm || variable(names->local_world_size).has_value());
  return world;
}

Secret secret_of(const WorldInfo& world) {
  if (auto given = given_secret()) return *std::move(given);
  if (world.hosts == Hosts::Several) {
    throw ConfigError(
        "environment variable {}: missing, though the {} ranks are on several hosts (here {}); name a file "
        "that is the same on all of them and private (mode 600), or let in whoever can reach {}:{} with "
        "--insecure",
        kSecretFileVariable, world.world_size, world.local_world_size, world.master_addr, world.master_port);
  }
  return users_secret();
}

ConnectOptions from_environment(ConnectOptions options) {
  if (const auto text = variable("TANDEM_TRANSPORT")) options.transport = transport(*text);
  if (const auto text = variable("TANDEM_COMM_TIMEOUT_S")) {
    options.timeout = std::chrono::seconds(number("TANDEM_COMM_TIMEOUT_S", *text, 1));
  }
  if (const auto text = variable("TANDEM_CONNECT_TIMEOUT_S")) {
    options.connect_timeout = std::chrono::seconds(number("TANDEM_CONNECT_TIMEOUT_S", *text, 1));
  }
  return options;
}

}  // namespace tandem
