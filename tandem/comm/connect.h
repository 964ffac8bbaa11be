// From the environment of a rank to its communicators: one for each axis of the mesh that has more than one
// rank.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/mesh.h"
#include "tandem/comm/communicator.h"
#include "tandem/comm/key_store/key_store.h"
#include "tandem/comm/secret.h"

namespace tandem {

enum class Hosts { One, Several, Unknown };  // where the ranks of a world are

// Who this process is among the ranks: torchrun's variables, else mpirun's, else Slurm's, else alone.
struct WorldInfo {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  int restart_count = 0;  // TORCHELASTIC_RESTART_COUNT: keeps the keys of one attempt apart from the last's
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  std::string run_id = "none";  // TORCHELASTIC_RUN_ID
  Hosts hosts = Hosts::One;     // as far as the variables tell
};
WorldInfo read_world();  // throws ConfigError naming the variable that is missing or no number

class Membership;

// Null where the axis has one rank. Each axis has its own, even where two have the same ranks: they are used
// by different threads at the same time.
struct Communicators {
  // Shared by all communicators of this process's ranks: they end together. On rank 0 it serves the store
  // too, so it goes last.
  std::shared_ptr<Membership> membership;
  std::array<std::unique_ptr<Communicator>, kNumAxes> axes;
  std::chrono::milliseconds timeout{300000};  // of every collective
  Communicator* get(Axis axis) const { return axes[static_cast<size_t>(axis)].get(); }
  void abort(const std::string& reason) const {  // of all axes
    for (const auto& comm : axes) {
      if (comm) comm->abort(reason);
    }
  }
};

enum class Transport { Auto, Shm, Tcp };  // Auto: shared memory where a group's ranks share a host, else tcp

struct ConnectOptions {
  std::chrono::milliseconds timeout{300000};          // of every collective; TANDEM_COMM_TIMEOUT_S overrides
  std::chrono::milliseconds connect_timeout{120000};  // for all ranks to appear; TANDEM_CONNECT_TIMEOUT_S
  Transport transport = Transport::Auto;              // TANDEM_TRANSPORT=auto|shm|tcp overrides
  std::function<void()> while_waiting;                // for others to appear, every now and then; may throw
  std::optional<Secret> secret;                       // what all ranks know; if not given, secret_of(world)
};
ConnectOptions from_environment(ConnectOptions options);  // with what the variables say; ConfigError

// The given one (secret.h), else this user's on this host, which ranks on other hosts do not know. Throws
// ConfigError where there are such.
Secret secret_of(const WorldInfo& world);

// Blocks until all ranks of the mesh are there. Rank 0 serves a tcp store at the master's address. Throws
// CommError, the same on all ranks: which ranks are missing, a world or mesh of another size, a rank that is
// there twice; and a store that is down. Rank 0 throws ListenError for a port in use, the others
// StrangerError where who serves there does not know the secret. Both functions apply from_environment.
Communicators connect(const WorldInfo& world, const MeshPosition& position, const ConnectOptions& options);

// The same for threads of one process: element r is rank r's.
std::vector<Communicators> connect_threads(const MeshShape& shape, const ConnectOptions& options);

}  // namespace tandem
