// The collectives of one mesh axis through NCCL, enqueued as host_device.cpp runs them on the CPU. The axis's
// Communicator (shared memory, tcp, threads) stays the control plane through which the ranks find each
// other.
//
// A communicator of NCCL runs its commands one after the other, whatever the queue. So that nothing waits for
// what it does not need, each is used from one queue only: one for the axis's collectives, which have one
// queue; and for messages one of two ranks for each direction between a pair that talks. A rank that sends
// thus never holds up its own receives, and two that send to each other at the same time both get through:
// the queues wait for each other as the streams of the CPU do, which the plan's order of commands allows.
//
// Sums of fp32, fp64 and int32 are NCCL's: in an order of its own, the same in every run. Those of 16-bit
// types would be rounded at each hop of a ring; here the parts are exchanged, which sends the same number of
// bytes, and summed in fp32 in the order of the ranks, which gives the CPU's bits.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/compile/memory_plan.h"
#include "tandem/kernels/cuda/device/queue.h"
#include "tandem/kernels/cuda/nccl/nccl_communicator.h"
#include "tandem/runtime/device.h"

namespace tandem::cuda {

class NcclAxis {
 public:
  NcclAxis(Axis axis, Communicator& control, const PeerWatch& watch);  // which outlive it

  // Makes and connects what the program's commands over this axis need. All ranks call this for the same
  // programs in the same order.
  void prepare(const Program& program, const std::array<Queue, kNumStreams>& queues);
  void enqueue(const BoundCommand& item, cudaStream_t queue);
  CommCounters traffic(const Program& program) const;  // of one run, over this axis

  Communicator& control() const { return control_; }
  std::vector<NcclCommunicator*> communicators() const;

 private:
  struct Link {  // places on the axis
    int from, to;
    auto operator<=>(const Link&) const = default;
  };
  struct Free {
    void operator()(std::byte* memory) const { cudaFree(memory); }
  };
  bool is_over(const BoundCommand& item) const { return item.kernel == nullptr && item.axis == axis_; }
  Link link_of(const BoundCommand& item) const;
  void make_group();
  void connect(const Link& link, const Queue& queue);
  void reserve(int64_t bytes);
  int64_t scratch_bytes(const BoundCommand& item) const;
  int64_t bytes_sent(const BoundCommand& item) const;

  void all_gather(const TensorArg& src, const TensorArg& dst, cudaStream_t queue);
  void all_reduce(const TensorArg& data, cudaStream_t queue);
  void reduce_scatter(const TensorArg& src, const TensorArg& dst, bool accumulate, cudaStream_t queue);
  void send(const TensorArg& src, const Link& link, cudaStream_t queue);
  void recv(const TensorArg& dst, const Link& link, cudaStream_t queue);

  const Axis axis_;
  Communicator& control_;
  const PeerWatch& watch_;
  const int rank_, size_;
  std::unique_ptr<NcclCommunicator> group_;
  std::map<Link, std::unique_ptr<NcclCommunicator>> links_;
  std::unique_ptr<std::byte, Free> scratch_;  // of the group's commands, one at a time
  int64_t scratch_size_ = 0;
};

}  // namespace tandem::cuda
