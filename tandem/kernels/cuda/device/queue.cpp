#include "tandem/kernels/cuda/device/queue.h"

#include <cstring>
#include <utility>

#include "tandem/kernels/cuda/device/cuda_check.h"

namespace tandem::cuda {
namespace {

bool is_done(cudaError_t status) {
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // which the runtime would report for the next kernel
    return false;
  }
  check(status, "a command failed on the GPU");
  return true;
}

}  // namespace

Queue::Queue() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
Queue::~Queue() { cudaStreamDestroy(stream_); }
void Queue::wait() const { check(cudaStreamSynchronize(stream_), "a command failed on the GPU"); }
bool Queue::done() const { return is_done(cudaStreamQuery(stream_)); }

Event::Event(bool timed) {
  check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreate");
}
Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}
Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
void Event::record(const Queue& queue) const {
  check(cudaEventRecord(event_, queue.get()), "cudaEventRecord");
}
void Event::hold(const Queue& queue) const {
  check(cudaStreamWaitEvent(queue.get(), event_, 0), "cudaStreamWaitEvent");
}
void Event::wait() const { check(cudaEventSynchronize(event_), "a command failed on the GPU"); }
bool Event::done() const { return is_done(cudaEventQuery(event_)); }
double Event::seconds_since(const Event& start) const {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, start.event_, event_), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(ms);
}

GraphProgram::~GraphProgram() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
}

void GraphProgram::capture(const Queue& origin, const std::function<void()>& enqueue) {
  check(cudaStreamBeginCapture(origin.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t captured = nullptr;
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(origin.get(), &captured);
    if (captured != nullptr) cudaGraphDestroy(captured);
    throw;
  }
  check(cudaStreamEndCapture(origin.get(), &captured), "cudaStreamEndCapture");
  const cudaError_t made = cudaGraphInstantiate(&graph_, captured, 0);
  cudaGraphDestroy(captured);
  check(made, "cudaGraphInstantiate");
  check(cudaGraphUpload(graph_, origin.get()), "cudaGraphUpload");
}

void GraphProgram::launch(const Queue& queue) const {
  check(cudaGraphLaunch(graph_, queue.get()), "cudaGraphLaunch");
}

namespace {

std::byte* allocate_pinned(size_t bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  return static_cast<std::byte*>(memory);
}

}  // namespace

PinnedRing::PinnedRing() : memory_(allocate_pinned(kSlots * kSlotBytes)) {
  for (size_t i = 0; i < kSlots; ++i) used_.emplace_back();
}

PinnedRing::~PinnedRing() { cudaFreeHost(memory_); }

void PinnedRing::write(void* to, std::span<const std::byte> from, const Queue& queue,
                       const std::function<void(const Event&)>& wait) {
  TANDEM_CHECK(from.size() <= kSlotBytes);
  const size_t slot = next_;
  next_ = (next_ + 1) % kSlots;
  wait(used_[slot]);  // an event that was never recorded is over
  std::memcpy(memory_ + slot * kSlotBytes, from.data(), from.size());
  check(cudaMemcpyAsync(to, memory_ + slot * kSlotBytes, from.size(), cudaMemcpyDefault, queue.get()),
        "cudaMemcpyAsync");
  used_[slot].record(queue);
}

Mailbox::Mailbox() : memory_(allocate_pinned(kBytes)) {}

Mailbox::~Mailbox() { cudaFreeHost(memory_); }

void Mailbox::fetch(std::span<std::byte> to, const void* from, const Queue& queue) {
  TANDEM_CHECK(to.size() <= kBytes);
  if (used_ + to.size() > kBytes) {
    queue.wait();
    deliver();
  }
  items_.push_back({to, used_});
  check(cudaMemcpyAsync(memory_ + used_, from, to.size(), cudaMemcpyDeviceToHost, queue.get()),
        "cudaMemcpyAsync");
  used_ += to.size();
}

void Mailbox::deliver() {
  for (const Item& item : items_) std::memcpy(item.to.data(), memory_ + item.offset, item.to.size());
  items_.clear();
  used_ = 0;
}

}  // namespace tandem::cuda
