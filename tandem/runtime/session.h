// Runs a compiled step on a device: allocates the planned arenas, binds every command to its kernel, or to
// its mesh axis, and to its addresses once, then has the device execute lists of commands.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/comm/connect.h"
#include "tandem/compile/compile_step.h"
#include "tandem/compile/executable.h"
#include "tandem/runtime/backend.h"
#include "tandem/runtime/device.h"
#include "tandem/runtime/kernel.h"

namespace tandem {

class Session {
 public:
  // `comms` outlives the session; a step for one rank needs none.
  Session(CompiledStep step, const Backend& backend, ThreadPool& pool, const Communicators* comms = nullptr);
  // On the CPU, with these kernels.
  Session(CompiledStep step, const KernelRegistry& registry, ThreadPool& pool,
          const Communicators* comms = nullptr);
  ~Session();

  const CompiledStep& step() const { return step_; }
  ThreadPool& pool() { return pool_; }

  void run_pass() { run(pass_); }
  void run_last_pass() { run(last_pass_); }
  void run_update() { run(update_); }
  void run_eval() { run(eval_); }
  void run_prefill() { run(prefill_); }
  void run_decode() { run(decode_); }

  // Inputs and outputs of one executable, by name. What `read` returns holds until the session next runs
  // something, or reads that output again: on a GPU it is a copy, on the CPU it is the output itself.
  void write(const Executable& executable, std::string_view input, std::span<const std::byte> bytes);
  std::span<const std::byte> read(const Executable& executable, std::string_view output) const;
  // As the output is now, without waiting for it: `to` has it once a later `read` or `wait` has returned.
  void read_later(const Executable& executable, std::string_view output, std::span<std::byte> to) const;

  void wait() const { device_->read({}, nullptr); }

  // A persistent buffer (a parameter, a gradient, ...) or a part of one: its live bytes, where the CPU
  // reaches them and nothing runs, or some of them copied to or from the device.
  bool shares_memory() const { return device_->shares_memory(); }
  bool reaches(const Slice& slice) const { return shares_memory() || slice.arena == Arena::Host; }
  std::span<std::byte> buffer(const Slice& slice) const;
  std::span<std::byte> buffer(const Persistent& item) const { return buffer(item.slice); }
  void read_buffer(const Slice& slice, int64_t offset, std::span<std::byte> to) const;
  void write_buffer(const Slice& slice, int64_t offset, std::span<const std::byte> from);
  std::span<std::byte> host() const { return memory(Arena::Host).span(); }
  int64_t allocated_bytes(Arena arena) const { return memory(arena).bytes; }
  int64_t library_bytes() const { return device_->library_bytes(); }

  // Sets every persistent buffer to its start: counter-based random numbers keyed by seed and name, so that
  // they depend on nothing else; weights and their masters are made of the same.
  void initialize(uint64_t seed);
  // After masters were loaded: weights are rounded from whole masters, and ranks gather them where they hold
  // masters of a part only. All ranks call it together.
  void refresh_weights();
  // With an optimizer that averages: whether it is one, and the weights to be read, its average (0) or what
  // passes read (1 - beta1). All ranks call it together.
  bool averages() const { return !step_.gather.inputs.empty(); }
  void blend_weights(float share);
  // The weights and their moving averages change places; a second call gives every bit back. All ranks call
  // it together. A step that was compiled for it only.
  void exchange_weights() { run(exchange_); }

  void observe(CommandObserver observer) { observer_ = std::move(observer); }

 private:
  Session(CompiledStep step, const KernelRegistry& registry, const KernelRegistry& host_registry,
          std::unique_ptr<Device> device, ThreadPool& pool, const Communicators* comms);
  Program bind(const Executable& executable, const KernelRegistry& registry,
               const KernelRegistry& host_registry) const;
  const DeviceMemory& memory(Arena arena) const { return arenas_[static_cast<size_t>(arena)]; }
  std::byte* address(const Slice& slice) const;
  void run(const Program& program);

  CompiledStep step_;
  ThreadPool& pool_;
  const Communicators* comms_;
  std::array<DeviceMemory, kNumArenas> arenas_;
  Program pass_, last_pass_, update_, eval_, gather_, exchange_, prefill_, decode_;
  CommandObserver observer_;
  mutable std::map<std::string, std::vector<std::byte>, std::less<>> outputs_;  // last read, by name
  std::unique_ptr<Device> device_;  // last: it may still be at work on the others
};

// The compiler's question to a registry, or to a backend's two: which kernel, and how much scratch on this
// many threads.
ChooseKernel choose_from(const KernelRegistry& registry, int num_threads);
ChooseKernel choose_from(const Backend& backend, int num_threads);

}  // namespace tandem
