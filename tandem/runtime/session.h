// Runs a compiled step: allocates the planned arenas, binds every command to its kernel and addresses once,
// then executes lists of commands with no allocation and no lookup.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/compile/executable.h"
#include "tandem/compile/pipeline.h"
#include "tandem/runtime/arena.h"
#include "tandem/runtime/kernel.h"

namespace tandem {

// Called after each command with its start and duration in seconds; for profiles and traces.
using CommandObserver =
    std::function<void(const Command& command, size_t index, double start_s, double seconds)>;

class Session {
 public:
  Session(CompiledStep step, const KernelRegistry& registry, ThreadPool& pool);

  const CompiledStep& step() const { return step_; }
  ThreadPool& pool() { return pool_; }

  void run_pass() { run(pass_); }
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
  // they depend on nothing else. Weights with an fp32 master are rounded from it.
  void initialize(uint64_t seed);
  void zero_gradients();
  void refresh_weights();  // weights = round(master), after masters were loaded

  void observe(CommandObserver observer) { observer_ = std::move(observer); }

 private:
  struct BoundCommand {
    const Kernel* kernel;
    std::vector<TensorArg> in;
    std::vector<TensorArg> out;
    const Command* command;
  };
  std::vector<BoundCommand> bind(const Executable& executable, const KernelRegistry& registry) const;
  std::byte* address(const Slice& slice) const;
  void run(const std::vector<BoundCommand>& commands);

  CompiledStep step_;
  ThreadPool& pool_;
  Stream stream_;
  std::array<HostArena, kNumArenas> arenas_;
  std::vector<BoundCommand> pass_, update_, eval_;
  CommandObserver observer_;
};

// The compiler's question to a registry: which kernel, and how much scratch on this many threads.
ChooseKernel choose_from(const KernelRegistry& registry, int num_threads);

}  // namespace tandem
