// A device as a session sees it: memory, copies between it and the host, and a way to run lists of bound
// commands. The CPU's is host_device.h; a GPU's may still be at work when run() returns.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/comm/connect.h"
#include "tandem/compile/executable.h"
#include "tandem/runtime/kernel.h"

namespace tandem {

// A command with its kernel, or the axis it communicates over, and its addresses.
struct BoundCommand {
  const Kernel* kernel;  // null for a collective
  Axis axis;             // of a collective
  std::string label;     // of a collective, for errors
  std::vector<TensorArg> in;
  std::vector<TensorArg> out;
  std::span<std::byte> workspace;
  const Command* command;
  size_t index;

  KernelArgs args() const { return {in, out, command->attrs, workspace}; }
};
using Program = std::vector<BoundCommand>;

// Called after each command with its start and duration in seconds; for profiles and traces. Streams call it
// one at a time.
using CommandObserver =
    std::function<void(const Command& command, size_t index, double start_s, double seconds)>;

struct DeviceMemory {
  std::shared_ptr<std::byte> data;
  int64_t bytes = 0;
  std::span<std::byte> span() const { return {data.get(), static_cast<size_t>(bytes)}; }
};

class Device {
 public:
  virtual ~Device() = default;

  // Exactly that many bytes, zeroed, for this arena; the CPU may touch those of Arena::Host, and all of them
  // where shares_memory(). Throws PlanError where the device cannot give them.
  virtual DeviceMemory allocate(Arena arena, int64_t bytes) = 0;
  virtual bool shares_memory() const = 0;

  // Between the caller's memory and the device's, after everything that was run before. `write` returns when
  // `from` may be used again, `read` when the bytes are there.
  virtual void write(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void read(std::span<std::byte> to, const std::byte* from) = 0;
  // The bytes as they are now, for a few of them: `to` has them once a later `read`, of nothing too, has
  // returned.
  virtual void read_later(std::span<std::byte> to, const std::byte* from) = 0;
  virtual void clear(std::byte* at, int64_t bytes) = 0;  // to zero
  // A buffer's piece at its start, and fp32 values rounded to another type, as initialize.h has them.
  virtual void initialize(std::byte* buffer, DType dtype, const Piece& piece, uint64_t seed) = 0;
  virtual void round(std::byte* to, DType dtype, const std::byte* from_f32, int64_t elems) = 0;

  // Once for a program, before its first run, while its memory holds nothing that is needed.
  virtual void prepare(const Program& program) = 0;
  // A program may run many times, always the same object. With an observer it has ended when this returns.
  virtual void run(const Program& program, const CommandObserver& observer) = 0;

  // What the device and its libraries have taken beside the arenas, so far.
  virtual int64_t library_bytes() const = 0;
};

// `comms` may be null, and outlives the device, as `pool` does.
using MakeDevice = std::function<std::unique_ptr<Device>(ThreadPool& pool, const Communicators* comms)>;

}  // namespace tandem
