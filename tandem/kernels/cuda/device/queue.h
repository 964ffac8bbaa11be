// Owners of the CUDA runtime's objects that a device is made of.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace tandem::cuda {

class Queue {
 public:
  Queue();
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  cudaStream_t get() const { return stream_; }
  void wait() const;  // for all that was put into it
  bool done() const;  // with all of it

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(bool timed = false);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&&) = delete;
  void record(const Queue& queue) const;
  void hold(const Queue& queue) const;  // what comes later in `queue` waits for this
  void wait() const;
  bool done() const;                               // also where it was never recorded
  double seconds_since(const Event& start) const;  // both timed, and over

 private:
  cudaEvent_t event_ = nullptr;
};

// What was put into queues between two points, to be launched as one. `origin` is the queue that everything
// starts from and ends in.
class GraphProgram {
 public:
  GraphProgram() = default;
  ~GraphProgram();
  GraphProgram(const GraphProgram&) = delete;
  GraphProgram& operator=(const GraphProgram&) = delete;
  bool ready() const { return graph_ != nullptr; }
  void capture(const Queue& origin, const std::function<void()>& enqueue);
  void launch(const Queue& queue) const;
  int runs = 0;  // before it was captured

 private:
  cudaGraphExec_t graph_ = nullptr;
};

// Page-locked memory in slots that are used in turn, so that a copy to the device need not be waited for.
class PinnedRing {
 public:
  static constexpr size_t kSlotBytes = size_t{1} << 20;
  PinnedRing();
  ~PinnedRing();
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;
  // At most a slot. `wait` is how to wait for the event after which the slot may be used again.
  void write(void* to, std::span<const std::byte> from, const Queue& queue,
             const std::function<void(const Event&)>& wait);

 private:
  static constexpr size_t kSlots = 16;
  std::byte* memory_ = nullptr;
  std::vector<Event> used_;  // one a slot
  size_t next_ = 0;
};

// Page-locked memory for small results that are on their way to the host.
class Mailbox {
 public:
  Mailbox();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  void fetch(std::span<std::byte> to, const void* from, const Queue& queue);
  void deliver();  // once the queue has been waited for

 private:
  static constexpr size_t kBytes = size_t{64} << 10;
  struct Item {
    std::span<std::byte> to;
    size_t offset;
  };
  std::byte* memory_ = nullptr;
  std::vector<Item> items_;
  size_t used_ = 0;
};

}  // namespace tandem::cuda
