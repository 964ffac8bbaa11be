// What the implementations of Communicator share: checks, counting, all_reduce in terms of the others, and
// the way a failure is told. An implementation moves bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/comm/membership.h"

namespace tandem {

struct Group {
  std::string axis;  // "data"
  int rank = 0;
  std::vector<std::string> names;  // of each rank, for messages: "rank 5 (node-b, pid 812)"
  std::chrono::milliseconds timeout{300000};
  int size() const { return static_cast<int>(names.size()); }
};

// A buffer of parts of `part_bytes`, one a rank; the last ones may be short or empty, where the count of
// elements does not divide: padding that is never moved.
struct Parts {
  int64_t total_bytes = 0;
  int64_t part_bytes = 0;
  int64_t offset(int part) const { return std::min(part * part_bytes, total_bytes); }
  int64_t length(int part) const { return offset(part + 1) - offset(part); }
};

class GroupCommunicator : public Communicator, protected Membership::Waiter {
 public:
  GroupCommunicator(Group group, std::shared_ptr<Membership> membership);

  int rank() const final { return group_.rank; }
  int size() const final { return group_.size(); }
  void all_reduce(std::span<std::byte> data, DType dtype, std::string_view label) final;
  void reduce_scatter(std::span<const std::byte> src, DType src_dtype, std::span<std::byte> dst,
                      DType dst_dtype, SumInto into, std::string_view label) final;
  void all_gather(std::span<const std::byte> src, std::span<std::byte> dst, std::string_view label) final;
  void all_to_all(std::span<const std::byte> src, std::span<std::byte> dst, std::string_view label) final;
  void broadcast(std::span<std::byte> data, int root, std::string_view label) final;
  void send(std::span<const std::byte> data, int peer, std::string_view label) final;
  void recv(std::span<std::byte> data, int peer, std::string_view label) final;
  void barrier(std::string_view label) final;
  void abort(const std::string& reason) final;
  CommCounters counters() const final;
  double waited_s() const { return 1e-9 * static_cast<double>(waited_ns_); }  // for peers, by any thread

 protected:
  enum class Operation : uint8_t {
    AllReduce,
    ReduceScatter,
    AllGather,
    AllToAll,
    Broadcast,
    Send,
    Recv,
    Barrier
  };
  static std::string_view operation_name(Operation operation);
  struct Call {
    Operation operation;
    std::string_view label;
    int64_t bytes;  // as given by the caller; the same on every rank
  };

  // src and dst may overlap as communicator.h allows. `src` points at the whole buffer, `dst` at one part,
  // in reduce_scatter; the other way round in all_gather.
  virtual void do_reduce_scatter(const Call& call, const std::byte* src, const Parts& parts, DType src_dtype,
                                 std::byte* dst, DType dst_dtype, SumInto into) = 0;
  virtual void do_all_gather(const Call& call, const std::byte* src, std::byte* dst, const Parts& parts) = 0;
  virtual void do_all_to_all(const Call& call, const std::byte* src, std::byte* dst, int64_t part_bytes) = 0;
  virtual void do_broadcast(const Call& call, std::span<std::byte> data, int root) = 0;
  virtual void do_send(const Call& call, std::span<const std::byte> data, int peer) = 0;
  virtual void do_recv(const Call& call, std::span<std::byte> data, int peer) = 0;
  virtual void do_barrier(const Call& call) = 0;

  // Ends the world with this reason, unless it has ended, and throws what it ended with.
  [[noreturn]] void fail(const Call& call, const std::string& reason);
  [[noreturn]] void fail_timeout(const Call& call, const std::string& who);
  void throw_if_ended(const Call& call) const;

  // While one lives, this rank waits.
  class Wait {
   public:
    explicit Wait(GroupCommunicator& group) : group_(group) {}
    ~Wait() {
      group_.waited_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begun_).count();
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    GroupCommunicator& group_;
    const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  };

  const Group group_;
  const std::shared_ptr<Membership> membership_;  // shared by the communicators of this process's ranks

 private:
  void begin(const Call& call, int64_t bytes_sent);

  std::atomic<int64_t> bytes_sent_{0}, calls_{0}, waited_ns_{0};
  std::vector<std::byte> scratch_;  // small all_reduces
};

}  // namespace tandem
