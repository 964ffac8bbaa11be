// checkpoint.memory: every few steps each rank copies its part of the state into memory that its launcher
// keeps, and sends it to a rank of the next node, which does the same with it. Ranks that are started again
// take the state from there, where every part is still somewhere.
//
// One copy is whole while the next is made: two files a rank, and steps in which all ranks take part between.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/checkpoint/reader.h"
#include "tandem/comm/kept_memory.h"
#include "tandem/compile/compile_step.h"
#include "tandem/models/model.h"
#include "tandem/runtime/session.h"
#include "tandem/train/saving/kept_parts.h"
#include "tandem/train/world.h"

namespace tandem {

// Which ranks' parts a rank keeps, its own first, where `node` has every rank's node. Each part has a place
// on another node, if there is one.
std::vector<int> kept_ranks(int rank, const std::vector<int>& nodes);
// ... of nodes with so many ranks each, as a plan has them.
std::vector<int> kept_ranks(int rank, int world, int ranks_here);

// What the copies take that a rank keeps; 0 where the config asks for none. A plan counts them at the end of
// the host arena, though the launcher has them and no session does. As for nodes of options.ranks_here ranks.
int64_t kept_bytes(const Config& config, const CompileOptions& options, const BuildModel& model);

// Throws ConfigError where no launcher keeps memory for this rank.
void require_kept_memory();

class MemoryCopies {
 public:
  // All ranks make one together, and keep together. `world` outlives it.
  MemoryCopies(const CompiledStep& step, const World& world, const WorldInfo& info);
  void keep(const CheckpointMeta& meta, Session& session);
  int64_t bytes() const { return kKeptFiles * layout_.bytes(); }  // of kept memory

 private:
  struct Peers {
    int index = 0;                // among the ranks of this node
    int num_here = 1;             // those
    int holder = -1;              // who keeps this rank's part; -1: nobody else
    std::vector<PartSize> parts;  // that this rank keeps
  };
  static Peers find_peers(const CompiledStep& step, const World& world, const WorldInfo& info);
  void exchange(std::span<std::byte> file);

  const World& world_;
  const int64_t attempt_;
  const Peers peers_;
  const KeptLayout layout_;
  std::vector<KeptFile> files_;  // of all ranks of this node
  int turn_ = 0;                 // which of its own is written next
  int64_t num_kept_ = 0;
};

// The newest state that memory holds whole, loaded into a session, where it is of a later step than
// `newer_than`. All ranks call it together. What was there and is damaged is told in `skipped`.
std::optional<Manifest> restore_copies(Session& session, const World& world, const WorldInfo& info,
                                       int64_t newer_than, std::vector<Skipped>& skipped);

}  // namespace tandem
