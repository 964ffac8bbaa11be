// A rank's place among the ranks of a run, and the small agreements between them that are not part of the
// compiled step. A run on one rank is a world of one, in which every agreement is immediate.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "tandem/base/mesh.h"
#include "tandem/comm/connect.h"
#include "tandem/config/config.h"

namespace tandem {

class World {
 public:
  World() = default;
  World(const MeshPosition& at, Communicators comms, int ranks_here)
      : at_(at), comms_(std::move(comms)), ranks_here_(ranks_here) {}

  const MeshPosition& at() const { return at_; }
  const Communicators* comms() const { return size() > 1 ? &comms_ : nullptr; }
  int size() const { return at_.shape.world(); }
  bool leads() const { return at_.rank() == 0; }  // writes what a run has one of
  int ranks_here() const { return ranks_here_; }  // that share this machine
  // Whether this rank's statistics of the loss count: one rank of each data position has them.
  bool counts_loss() const { return at_.counts_loss(); }

  void barrier(std::string_view label) const;
  void sum(std::span<double> values, std::string_view label) const;  // over all ranks
  bool all(bool mine, std::string_view label) const;                 // true on every rank
  int64_t from_lead(int64_t value, std::string_view label) const;    // rank 0's
  std::string from_lead(const std::string& text, std::string_view label) const;
  void abort(const std::string& reason) const {
    comms_.abort(reason);
  }  // the others need not wait for this rank
  // Throws CommError where a rank is known to be lost, for waits that are no collective's.
  void check() const;

 private:
  Communicator* world_comm() const { return comms_.get(Axis::World); }

  MeshPosition at_;
  Communicators comms_;
  int ranks_here_ = 1;
};

// How long ranks wait for each other, as the config says; to `connect` the environment may say otherwise.
ConnectOptions connect_options(const Config& config);

// The world that `info` describes (tandem launch, torchrun, Slurm, Open MPI). Throws ConfigError where its
// size is not that of the config's mesh. Calls while_waiting, which may throw, every now and then until all
// ranks have come.
World join_world(const Config& config, const WorldInfo& info,
                 const std::function<void()>& while_waiting = {});

}  // namespace tandem
