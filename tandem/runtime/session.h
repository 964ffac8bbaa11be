// Runs a compiled step: allocates the planned arenas, binds every command to its kernel, or to the
// communicator of its axis, and to its addresses once, then executes lists of commands. Computation runs on
// the calling thread and its pool; collectives of the data axis, sends and copies on streams of their own
// beside it.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/base/task_stream.h"
#include "tandem/comm/connect.h"
#include "tandem/compile/executable.h"
#include "tandem/compile/memory_plan.h"
#include "tandem/compile/pipeline.h"
#include "tandem/runtime/arena.h"
#include "tandem/runtime/kernel.h"

namespace tandem {

// Called after each command with its start and duration in seconds; for profiles and traces. Streams call it
// one at a time.
using CommandObserver =
    std::function<void(const Command& command, size_t index, double start_s, double seconds)>;

class Session {
 public:
  // `comms` outlives the session; a step for one rank needs none.
  Session(CompiledStep step, const KernelRegistry& registry, ThreadPool& pool,
          const Communicators* comms = nullptr);
  ~Session();

  const CompiledStep& step() const { return step_; }
  ThreadPool& pool() { return pool_; }

  void run_pass() { run(pass_); }
  void run_last_pass() { run(last_pass_); }
  void run_update() { run(update_); }
  void run_eval() { run(eval_); }

  // Inputs and outputs of one executable, by name.
  void write(const Executable& executable, std::string_view input, std::span<const std::byte> bytes);
  std::span<const std::byte> read(const Executable& executable, std::string_view output) const;

  // A persistent buffer's live bytes (a parameter, a gradient, ...).
  std::span<std::byte> buffer(const Persistent& persistent) const;
  std::span<std::byte> host() const { return arenas_[static_cast<size_t>(Arena::Host)].span(); }
  int64_t allocated_bytes(Arena arena) const { return arenas_[static_cast<size_t>(arena)].bytes(); }

  // Sets every persistent buffer to its start: counter-based random numbers keyed by seed and name, so that
  // they depend on nothing else. Weights with an fp32 master are rounded from it. All ranks call these
  // together.
  void initialize(uint64_t seed);
  void refresh_weights();  // weights = round(master), after masters were loaded

  void observe(CommandObserver observer) { observer_ = std::move(observer); }

 private:
  struct BoundCommand {
    const Kernel* kernel;  // null for a collective
    Communicator* comm;    // null for a kernel
    std::string label;     // of a collective, for errors
    std::vector<TensorArg> in;
    std::vector<TensorArg> out;
    const Command* command;
    size_t index;
  };
  std::vector<BoundCommand> bind(const Executable& executable, const KernelRegistry& registry) const;
  std::byte* address(const Slice& slice) const;
  void run(const std::vector<BoundCommand>& commands);
  void run_streams(const std::vector<BoundCommand>& commands);
  void execute(const BoundCommand& item, Stream& stream);

  CompiledStep step_;
  ThreadPool& pool_;
  Stream stream_;
  ThreadPool copy_pool_{1};  // of the streams beside computation
  Stream copy_stream_{copy_pool_};
  const Communicators* comms_;
  std::array<HostArena, kNumArenas> arenas_;
  std::vector<BoundCommand> pass_, last_pass_, update_, eval_, gather_;
  CommandObserver observer_;
  std::mutex observer_mutex_;
  std::array<std::unique_ptr<TaskStream>, kNumStreams> streams_;  // null where no command runs there
};

// The compiler's question to a registry: which kernel, and how much scratch on this many threads.
ChooseKernel choose_from(const KernelRegistry& registry, int num_threads);

}  // namespace tandem
