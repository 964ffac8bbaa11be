// One GPU as a device. Commands go to queues (CUDA streams), one for each stream of the plan, with events
// where one must wait for another; a program runs so once, is then captured as a CUDA graph, and replayed.
// Work on the host's memory (an offloaded optimizer) is a node of the same graph, and so are collectives:
// where a rank has peers, the host waits for the GPU only in ways that end when a peer is lost.
#pragma once

#include <array>
#include <map>
#include <mutex>

#include "tandem/compile/memory_plan.h"
#include "tandem/kernels/cuda/device/queue.h"
#include "tandem/kernels/cuda/nccl/gpu_collectives.h"
#include "tandem/runtime/arena.h"
#include "tandem/runtime/device.h"

namespace tandem::cuda {

class CudaDevice : public Device {
 public:
  // GPU number `index`; DeviceError where there is none. `comms` is null where the rank has no peers; all
  // ranks make and end their devices together.
  CudaDevice(int index, ThreadPool& pool, const Communicators* comms);
  ~CudaDevice() override;

  DeviceMemory allocate(Arena arena, int64_t bytes) override;
  bool shares_memory() const override { return false; }
  void write(std::byte* to, std::span<const std::byte> from) override;
  void read(std::span<std::byte> to, const std::byte* from) override;
  void read_later(std::span<std::byte> to, const std::byte* from) override;
  void clear(std::byte* at, int64_t bytes) override;
  void initialize(std::byte* buffer, DType dtype, const Piece& piece, uint64_t seed) override;
  void round(std::byte* to, DType dtype, const std::byte* from_f32, int64_t elems) override;
  void prepare(const Program& program) override;
  void run(const Program& program, const CommandObserver& observer) override;
  int64_t library_bytes() const override;
  CommCounters counters(Axis axis) const { return collectives_->counters(axis); }  // where there are peers

 private:
  struct HostCall {  // a command that the CPU runs, as a CUDA queue calls it
    CudaDevice* device;
    const BoundCommand* item;
  };
  // Two marks a command, before and after it, where there are any.
  void enqueue(const Program& program, bool captured, const std::vector<Event>* marks = nullptr);
  void wait(const Queue& queue);
  void wait(const Event& event);
  void wait_for_peers(const std::function<bool()>& done);
  void leave_peers() noexcept;
  void abort_peers();
  void launch(const BoundCommand& item, const Queue& queue);
  void run_host_call(const BoundCommand& item) noexcept;
  void observe(const Program& program, const CommandObserver& observer);
  void throw_host_error();
  bool on_host(const std::byte* at) const;
  void pin_host_arena();

  int index_;
  int64_t free_before_;  // when the process had nothing on the GPU yet; choosing the GPU comes first
  ThreadPool& pool_;
  ThreadPool host_pool_;  // of commands on the host's memory
  std::array<Queue, kNumStreams> queues_;
  std::unique_ptr<GpuCollectives> collectives_;    // null without peers
  std::vector<Event> events_;                      // between queues, used again in every run
  std::map<const Program*, GraphProgram> graphs_;  // from the second run on
  std::array<Event, 2> ended_;                     // with peers: after the last runs, which go on meanwhile
  size_t runs_ = 0;
  std::map<const BoundCommand*, HostCall> host_calls_;
  PinnedRing ring_;  // through which small inputs are written
  Mailbox mailbox_;  // and small outputs read
  std::span<std::byte> host_arena_;
  bool pinned_ = false;
  int64_t arena_bytes_ = 0;
  std::mutex host_error_mutex_;
  std::exception_ptr host_error_;
};

}  // namespace tandem::cuda
