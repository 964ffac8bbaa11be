// The CPU as a device: arenas are plain memory; computation runs on the calling thread and its pool,
// collectives of the data axis, sends and copies on streams of their own beside it.
#pragma once

#include <array>
#include <mutex>

#include "tandem/base/task_stream.h"
#include "tandem/compile/memory_plan.h"
#include "tandem/runtime/device.h"
#include "tandem/runtime/test_fault.h"

namespace tandem {

class HostDevice : public Device {
 public:
  HostDevice(ThreadPool& pool, const Communicators* comms);

  DeviceMemory allocate(Arena arena, int64_t bytes) override;
  bool shares_memory() const override { return true; }
  void write(std::byte* to, std::span<const std::byte> from) override;
  void read(std::span<std::byte> to, const std::byte* from) override;
  void read_later(std::span<std::byte> to, const std::byte* from) override { read(to, from); }
  void clear(std::byte* at, int64_t bytes) override;
  void initialize(std::byte* buffer, DType dtype, const Piece& piece, uint64_t seed) override;
  void round(std::byte* to, DType dtype, const std::byte* from_f32, int64_t elems) override;
  void prepare(const Program& program) override;
  void run(const Program& program, const CommandObserver& observer) override;
  int64_t library_bytes() const override { return 0; }

 private:
  void execute(const BoundCommand& item, Stream& stream, const CommandObserver& observer);
  void execute_with(const TestFault& fault, const Program& program, const BoundCommand& item, Stream& stream,
                    const CommandObserver& observer);

  ThreadPool& pool_;
  Stream stream_;
  ThreadPool copy_pool_{1};  // of the streams beside computation
  Stream copy_stream_{copy_pool_};
  const Communicators* comms_;
  const std::optional<TestFault> fault_ = TestFault::from_environment();
  std::mutex observer_mutex_;
  std::array<std::unique_ptr<TaskStream>, kNumStreams> streams_;  // null where no command runs there
};

}  // namespace tandem
