// One communicator of NCCL. It is made without blocking (NCCL works in a thread of its own and is asked how
// far it has come), so that a peer that never comes is a CommError and not a hang; everything is called from
// the thread of the device.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "tandem/kernels/cuda/nccl/nccl_library.h"
#include "tandem/kernels/cuda/nccl/peer_watch.h"

namespace tandem::cuda {

class NcclCommunicator {
 public:
  static ncclUniqueId make_id();  // one rank of it makes it, and gives it to the others

  // All its ranks call this together. `name`, for errors: "nccl (data axis)". `max_blocks` is how many blocks
  // of threads its kernels may occupy, 0 for as many as NCCL likes.
  NcclCommunicator(const ncclUniqueId& id, int rank, int size, int max_blocks, std::string name,
                   const PeerWatch& watch);

  // Puts commands into a queue: what `call` calls, which is one function of NCCL or one group of them. The
  // first of its kind connects the ranks and waits for them.
  void enqueue(const std::function<ncclResult_t(ncclComm_t comm)>& call);
  void check() const;  // CommError where NCCL has failed meanwhile

  // When its commands have run and no graph holds any: all ranks together, the first for all communicators of
  // a rank before the second.
  void finish();
  void destroy();

  // Ends whatever still runs, of all of them at once: one may be behind another in the queues. Graphs that
  // hold commands of theirs must have been destroyed, for NCCL waits for that.
  static void abort(std::span<NcclCommunicator* const> list);

 private:
  struct Abort {
    void operator()(ncclComm_t comm) const { nccl().comm_abort(comm); }
  };
  void settle(ncclResult_t status) const;
  [[noreturn]] void fail(ncclResult_t status) const;

  const std::string name_;
  const PeerWatch& watch_;
  std::unique_ptr<std::remove_pointer_t<ncclComm_t>, Abort> comm_;
};

}  // namespace tandem::cuda
