// What a GPU does together with those of other ranks: every mesh axis's part of NCCL, and waits that end when
// a rank is lost.
#pragma once

#include "tandem/kernels/cuda/nccl/nccl_axis.h"

namespace tandem::cuda {

class GpuCollectives {
 public:
  explicit GpuCollectives(const Communicators& control);  // which outlives it
  ~GpuCollectives();                                      // aborts, unless finished

  // All ranks call this for the same programs in the same order.
  void prepare(const Program& program, const std::array<Queue, kNumStreams>& queues);
  void enqueue(const BoundCommand& item, cudaStream_t queue);
  void wait(const std::function<bool()>& done) const;  // CommError where it would be in vain

  // Both when no graph is left that holds a collective. finish(): when all has run, together with the others.
  void finish();
  void abort();

  void count(const Program& program);  // it runs once more
  CommCounters counters(Axis axis) const { return counters_[static_cast<size_t>(axis)]; }

 private:
  std::vector<NcclCommunicator*> communicators() const;

  PeerWatch watch_;
  std::array<std::unique_ptr<NcclAxis>, kNumAxes> axes_;  // null where the axis has one rank
  std::array<CommCounters, kNumAxes> counters_{};
};

}  // namespace tandem::cuda
