#include "tandem/kernels/cuda/nccl/gpu_collectives.h"

namespace tandem::cuda {

GpuCollectives::GpuCollectives(const Communicators& control) : watch_(control) {
  for (Axis axis : kAxes) {
    if (Communicator* comm = control.get(axis))
      axes_[static_cast<size_t>(axis)] = std::make_unique<NcclAxis>(axis, *comm, watch_);
  }
}

GpuCollectives::~GpuCollectives() { abort(); }

void GpuCollectives::prepare(const Program& program, const std::array<Queue, kNumStreams>& queues) {
  for (const auto& axis : axes_) {
    if (axis) axis->prepare(program, queues);
  }
}

void GpuCollectives::enqueue(const BoundCommand& item, cudaStream_t queue) {
  axes_[static_cast<size_t>(item.axis)]->enqueue(item, queue);
}

void GpuCollectives::wait(const std::function<bool()>& done) const {
  const std::vector<NcclCommunicator*> list = communicators();
  watch_.wait("waiting for the GPU", [&] {
    if (done()) return true;
    for (const NcclCommunicator* communicator : list) communicator->check();
    return false;
  });
}

void GpuCollectives::finish() {
  for (const auto& axis : axes_) {
    if (axis && !axis->communicators().empty()) axis->control().barrier("end of nccl");
  }
  const std::vector<NcclCommunicator*> list = communicators();
  for (NcclCommunicator* communicator : list) communicator->finish();
  for (NcclCommunicator* communicator : list) communicator->destroy();
  for (auto& axis : axes_) axis.reset();
}

void GpuCollectives::abort() { NcclCommunicator::abort(communicators()); }

void GpuCollectives::count(const Program& program) {
  for (Axis axis : kAxes) {
    const auto& found = axes_[static_cast<size_t>(axis)];
    if (!found) continue;
    const CommCounters more = found->traffic(program);
    CommCounters& total = counters_[static_cast<size_t>(axis)];
    total.bytes_sent += more.bytes_sent;
    total.calls += more.calls;
  }
}

std::vector<NcclCommunicator*> GpuCollectives::communicators() const {
  std::vector<NcclCommunicator*> list;
  for (const auto& axis : axes_) {
    if (!axis) continue;
    for (NcclCommunicator* communicator : axis->communicators()) list.push_back(communicator);
  }
  return list;
}

}  // namespace tandem::cuda
