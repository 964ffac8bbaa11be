// Collectives over tcp, for groups whose ranks are on several hosts: Gloo moves the bytes between each pair
// of ranks, and the sums are made here, in the order of the ranks. Every rank sends part j to rank j itself.
#pragma once

#include <mutex>

#include "tandem/comm/group_communicator.h"
#include "tandem/comm/store.h"

namespace gloo {
class Context;
namespace transport {
class Device;
}
}  // namespace gloo

namespace tandem {

// Gloo's thread and sockets in this process, bound to the address by which the others reach it. Makes the
// process ignore SIGPIPE, unless it handles it.
std::shared_ptr<gloo::transport::Device> open_gloo_device(const std::string& address);

class GlooCommunicator final : public GroupCommunicator {
 public:
  // Connects with all ranks of the group, which find each other under `prefix` in the store.
  GlooCommunicator(Group group, std::shared_ptr<Membership> membership,
                   std::shared_ptr<gloo::transport::Device> device, Store& store, const std::string& prefix,
                   std::chrono::milliseconds connect_timeout);
  ~GlooCommunicator() override;

  int64_t memory_bytes() const override;
  std::string description() const override { return "gloo over tcp"; }

 private:
  class Transfer;

  void do_reduce_scatter(const Call& call, const std::byte* src, const Parts& parts, DType src_dtype,
                         std::byte* dst, DType dst_dtype, bool accumulate) override;
  void do_all_gather(const Call& call, const std::byte* src, std::byte* dst, const Parts& parts) override;
  void do_all_to_all(const Call& call, const std::byte* src, std::byte* dst, int64_t part_bytes) override;
  void do_broadcast(const Call& call, std::span<std::byte> data, int root) override;
  void do_send(const Call& call, std::span<const std::byte> data, int peer) override;
  void do_recv(const Call& call, std::span<std::byte> data, int peer) override;
  void do_barrier(const Call& call) override;
  void wake(const std::string& reason) override;

  // One piece for each other rank and one from each; null and empty pieces are not sent.
  struct Piece {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  template <typename Out, typename In>
  void exchange(const Call& call, Out out, In in);
  uint64_t collective_tag(const Call& call);

  std::mutex mutex_;
  std::vector<Transfer*> transfers_;  // under way; guarded by mutex_
  std::shared_ptr<gloo::Context> context_;
  uint32_t round_ = 0;
  std::vector<uint32_t> sent_, received_;  // messages, by peer
  std::vector<std::byte> staging_;         // what others send to be summed
};

}  // namespace tandem
