// Collectives among the ranks of one group. Every implementation gives the same bits: sums are made in fp32
// (f64 for f64) in the order of the ranks, 0 + 1 + 2 + ..., each element on one rank, and rounded once.
//
// Calls block; each wait has the communicator's timeout. A peer that is lost, or that does not come in time,
// is a CommError that names the operation, the label, the axis, and the peer by its rank in the world:
//   "reduce_scatter blocks.3 (data axis): rank 5 (node-b, pid 812) is gone; its own output says why"
// From then on this communicator is dead, and so are all that were connected together with it, on every axis
// and every rank: whoever fails tells the others, so that nobody waits for the full timeout because of
// somebody else's failure, and all give the same reason.
//
// One thread at a time may call; send may run beside anything, and so may recv, each from a thread of its
// own. All ranks of a group call the same collectives in the same order; where two differ, they are told so,
// or time out.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tandem/base/dtype.h"
#include "tandem/comm/sum.h"

namespace tandem {

// What this rank has sent, in bytes of payload, whatever the transport did with them: in reduce_scatter,
// all_gather and all_to_all (size - 1) / size of the whole buffer; in all_reduce twice that, of the size
// padded to a multiple of `size` elements; in send its bytes; in broadcast (size - 1) times the buffer at the
// root and nothing elsewhere; in recv and barrier nothing.
struct CommCounters {
  int64_t bytes_sent = 0;
  int64_t calls = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // within the group
  virtual int size() const = 0;

  // data = sum over ranks, on every rank. Int32 is summed too, here and below, into int32.
  virtual void all_reduce(std::span<std::byte> data, DType dtype, std::string_view label) = 0;

  // dst = the sum over ranks of their src part number rank(), with what `into` says of dst. src holds size()
  // parts of equal length, dst one such part; dst may be that part of src itself. The sum is made in fp32
  // from parts of type `src_dtype`, then added to dst or rounded into it, of type `dst_dtype`.
  virtual void reduce_scatter(std::span<const std::byte> src, DType src_dtype, std::span<std::byte> dst,
                              DType dst_dtype, SumInto into, std::string_view label) = 0;

  // Part i of dst = rank i's src. src may be this rank's part of dst itself.
  virtual void all_gather(std::span<const std::byte> src, std::span<std::byte> dst,
                          std::string_view label) = 0;

  // Part i of dst = part rank() of rank i's src. The two do not overlap.
  virtual void all_to_all(std::span<const std::byte> src, std::span<std::byte> dst,
                          std::string_view label) = 0;
  virtual void broadcast(std::span<std::byte> data, int root, std::string_view label) = 0;
  virtual void send(std::span<const std::byte> data, int peer, std::string_view label) = 0;
  virtual void recv(std::span<std::byte> data, int peer, std::string_view label) = 0;
  virtual void barrier(std::string_view label) = 0;

  // Ends the communicator, and with it all that were connected together with it, from any thread: calls under
  // way on this rank throw a CommError with this reason at once, and the peers' soon. The first reason stays.
  virtual void abort(const std::string& reason) = 0;

  virtual CommCounters counters() const = 0;
  virtual int64_t memory_bytes() const = 0;     // this rank's share of windows and buffers, so far
  virtual std::string description() const = 0;  // "shared memory", "tcp", "threads"
};

}  // namespace tandem
