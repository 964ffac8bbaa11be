// Collectives through memory that all ranks of the group map: threads of a process, or processes of a host.
//
// Each rank has a window of a few slots that only it writes. A collective is a sequence of rounds, the same
// on all ranks: write the next piece into a slot of my window, wait until all have written theirs, read what
// I need from theirs. Slots are small enough to stay in the cache, so a round costs one pass over memory.
// Messages from one rank to another have a ring of slots for each such pair.
#pragma once

#include "tandem/comm/group_communicator.h"
#include "tandem/comm/shared_counter.h"
#include "tandem/comm/shared_region.h"

namespace tandem {

class WindowCommunicator final : public GroupCommunicator {
 public:
  static int64_t region_bytes(int num_ranks);  // all zero at first

  // `spin_us`: how long to look before sleeping; 0 where ranks outnumber processors.
  WindowCommunicator(Group group, std::shared_ptr<Membership> membership,
                     std::shared_ptr<SharedRegion> region, int spin_us, std::string description);
  ~WindowCommunicator() override;

  int64_t memory_bytes() const override;
  std::string description() const override { return description_; }

 private:
  struct Header;
  struct Seat;
  struct Mailbox;

  void do_reduce_scatter(const Call& call, const std::byte* src, const Parts& parts, DType src_dtype,
                         std::byte* dst, DType dst_dtype, SumInto into) override;
  void do_all_gather(const Call& call, const std::byte* src, std::byte* dst, const Parts& parts) override;
  void do_all_to_all(const Call& call, const std::byte* src, std::byte* dst, int64_t part_bytes) override;
  void do_broadcast(const Call& call, std::span<std::byte> data, int root) override;
  void do_send(const Call& call, std::span<const std::byte> data, int peer) override;
  void do_recv(const Call& call, std::span<std::byte> data, int peer) override;
  void do_barrier(const Call& call) override;
  void wake(const std::string& reason) override;
  void wake_sleepers();

  template <typename Write, typename Read>
  void round(const Call& call, Write write, Read read);
  void await(const Call& call, SharedCounter& counter, uint32_t target, int peer);
  std::string late_ranks(uint32_t target, bool in_round, int peer) const;
  void check_same_call(const Call& call, int peer, uint32_t slot);
  static uint64_t signature(const Call& call);

  Header& header() const;
  Seat& seat(int rank) const;
  Mailbox& mailbox(int from, int to) const;
  std::byte* window(int rank, uint32_t slot) const;
  std::byte* mail(int from, int to, uint32_t slot) const;

  const std::shared_ptr<SharedRegion> region_;  // shared by the ranks that are threads of this process
  const int spin_us_;
  const std::string description_;
  uint32_t round_ = 0;
  std::vector<uint32_t> sent_, received_;  // chunks, by peer
  std::vector<const std::byte*> pieces_;
};

}  // namespace tandem
