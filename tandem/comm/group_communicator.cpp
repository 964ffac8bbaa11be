#include "tandem/comm/group_communicator.h"

#include <algorithm>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/comm/places/place_page.h"
#include "tandem/comm/sent_digests.h"
#include "tandem/comm/sum.h"

namespace tandem {
namespace {

// Below this every rank gets all the data and adds it up itself: one exchange instead of two, same bits.
constexpr int64_t kSmallReduceBytes = 4096;

int64_t size_of(std::span<const std::byte> data) { return static_cast<int64_t>(data.size()); }

}  // namespace

std::string_view GroupCommunicator::operation_name(Operation operation) {
  switch (operation) {
    case Operation::AllReduce: return "all_reduce";
    case Operation::ReduceScatter: return "reduce_scatter";
    case Operation::AllGather: return "all_gather";
    case Operation::AllToAll: return "all_to_all";
    case Operation::Broadcast: return "broadcast";
    case Operation::Send: return "send";
    case Operation::Recv: return "recv";
    case Operation::Barrier: return "barrier";
  }
  return "?";
}

GroupCommunicator::GroupCommunicator(Group group, std::shared_ptr<Membership> membership)
    : group_(std::move(group)), membership_(std::move(membership)) {
  TANDEM_CHECK(group_.size() > 0 && group_.rank >= 0 && group_.rank < group_.size());
}

void GroupCommunicator::begin(const Call& call, int64_t bytes_sent) {
  throw_if_ended(call);
  bytes_sent_ += bytes_sent;
  ++calls_;
}

void GroupCommunicator::all_reduce(std::span<std::byte> data, DType dtype, std::string_view label) {
  const int64_t n = size(), elem_bytes = dtype_bytes(dtype), bytes = size_of(data);
  TANDEM_CHECK(bytes % elem_bytes == 0, "{} bytes of {}", bytes, dtype_name(dtype));
  const int64_t part_bytes = (bytes / elem_bytes + n - 1) / n * elem_bytes;
  const Call call{Operation::AllReduce, label, bytes};
  begin(call, 2 * (n - 1) * part_bytes);
  const PlacedCall placed(group_.axis, CallKind::Collective, operation_name(call.operation), label);
  if (SentDigests* sent = asked_sent_digests()) [[unlikely]]
    sent->add(group_.axis, CallKind::Collective, operation_name(call.operation), label, data);
  if (n == 1 || bytes == 0) return;
  if (bytes <= kSmallReduceBytes) {
    scratch_.resize(static_cast<size_t>(n * bytes));
    do_all_gather(call, data.data(), scratch_.data(), {n * bytes, bytes});
    std::vector<const std::byte*> parts(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) parts[static_cast<size_t>(i)] = scratch_.data() + i * bytes;
    sum_parts(parts, dtype, data.data(), dtype, bytes / elem_bytes, SumInto::Overwrite);
    return;
  }
  const Parts parts{bytes, part_bytes};
  std::byte* own = data.data() + parts.offset(rank());
  do_reduce_scatter(call, data.data(), parts, dtype, own, dtype, SumInto::Overwrite);
  do_all_gather(call, own, data.data(), parts);
}

void GroupCommunicator::reduce_scatter(std::span<const std::byte> src, DType src_dtype,
                                       std::span<std::byte> dst, DType dst_dtype, SumInto into,
                                       std::string_view label) {
  const int64_t n = size(), bytes = size_of(src);
  TANDEM_CHECK(bytes % (n * dtype_bytes(src_dtype)) == 0, "{} bytes of {} in {} parts", bytes,
               dtype_name(src_dtype), n);
  const Parts parts{bytes, bytes / n};
  TANDEM_CHECK(size_of(dst) / dtype_bytes(dst_dtype) == parts.part_bytes / dtype_bytes(src_dtype),
               "{}: src has {} bytes, dst {}", label, bytes, dst.size());
  const Call call{Operation::ReduceScatter, label, bytes};
  begin(call, bytes - parts.part_bytes);
  const PlacedCall placed(group_.axis, CallKind::Collective, operation_name(call.operation), label);
  if (SentDigests* sent = asked_sent_digests()) [[unlikely]]
    sent->add(group_.axis, CallKind::Collective, operation_name(call.operation), label, src);
  if (bytes == 0) return;
  do_reduce_scatter(call, src.data(), parts, src_dtype, dst.data(), dst_dtype, into);
}

void GroupCommunicator::all_gather(std::span<const std::byte> src, std::span<std::byte> dst,
                                   std::string_view label) {
  TANDEM_CHECK(size_of(dst) == size() * size_of(src), "{}: src has {} bytes, dst {}, ranks {}", label,
               src.size(), dst.size(), size());
  const Call call{Operation::AllGather, label, size_of(dst)};
  begin(call, size_of(dst) - size_of(src));
  const PlacedCall placed(group_.axis, CallKind::Collective, operation_name(call.operation), label);
  if (SentDigests* sent = asked_sent_digests()) [[unlikely]]
    sent->add(group_.axis, CallKind::Collective, operation_name(call.operation), label, src);
  if (dst.empty()) return;
  do_all_gather(call, src.data(), dst.data(), {size_of(dst), size_of(src)});
}

void GroupCommunicator::all_to_all(std::span<const std::byte> src, std::span<std::byte> dst,
                                   std::string_view label) {
  TANDEM_CHECK(src.size() == dst.size() && size_of(src) % size() == 0,
               "{}: src has {} bytes, dst {}, ranks {}", label, src.size(), dst.size(), size());
  TANDEM_CHECK(src.empty() || src.data() + src.size() <= dst.data() || dst.data() + dst.size() <= src.data(),
               "{}: all_to_all cannot work in place", label);
  const Call call{Operation::AllToAll, label, size_of(src)};
  begin(call, size_of(src) - size_of(src) / size());
  const PlacedCall placed(group_.axis, CallKind::Collective, operation_name(call.operation), label);
  if (SentDigests* sent = asked_sent_digests()) [[unlikely]]
    sent->add(group_.axis, CallKind::Collective, operation_name(call.operation), label, src);
  if (src.empty()) return;
  do_all_to_all(call, src.data(), dst.data(), size_of(src) / size());
}

void GroupCommunicator::broadcast(std::span<std::byte> data, int root, std::string_view label) {
  TANDEM_CHECK(root >= 0 && root < size());
  const Call call{Operation::Broadcast, label, size_of(data)};
  begin(call, root == rank() ? (size() - 1) * size_of(data) : 0);
  const PlacedCall placed(group_.axis, CallKind::Collective, operation_name(call.operation), label);
  if (size() == 1 || data.empty()) return;
  do_broadcast(call, data, root);
}

void GroupCommunicator::send(std::span<const std::byte> data, int peer, std::string_view label) {
  TANDEM_CHECK(peer >= 0 && peer < size() && peer != rank(), "{}: send to rank {} of {}", label, peer,
               size());
  const Call call{Operation::Send, label, size_of(data)};
  begin(call, size_of(data));
  const PlacedCall placed(group_.axis, CallKind::Send, operation_name(call.operation), label, peer);
  if (SentDigests* sent = asked_sent_digests()) [[unlikely]]
    sent->add(group_.axis, CallKind::Send, operation_name(call.operation), label, data);
  if (!data.empty()) do_send(call, data, peer);
}

void GroupCommunicator::recv(std::span<std::byte> data, int peer, std::string_view label) {
  TANDEM_CHECK(peer >= 0 && peer < size() && peer != rank(), "{}: recv from rank {} of {}", label, peer,
               size());
  const Call call{Operation::Recv, label, size_of(data)};
  begin(call, 0);
  const PlacedCall placed(group_.axis, CallKind::Recv, operation_name(call.operation), label, peer);
  if (!data.empty()) do_recv(call, data, peer);
}

void GroupCommunicator::barrier(std::string_view label) {
  const Call call{Operation::Barrier, label, 0};
  begin(call, 0);
  const PlacedCall placed(group_.axis, CallKind::Collective, operation_name(call.operation), label);
  if (size() > 1) do_barrier(call);
}

void GroupCommunicator::abort(const std::string& reason) { membership_->end(reason); }

CommCounters GroupCommunicator::counters() const { return {bytes_sent_, calls_}; }

void GroupCommunicator::fail(const Call& call, const std::string& reason) {
  membership_->end(reason);
  throw_if_ended(call);
  fail_check(__FILE__, __LINE__, "membership_->ended()", reason);
}

void GroupCommunicator::fail_timeout(const Call& call, const std::string& who) {
  const std::string silent = membership_->silent_ranks();
  const double seconds = static_cast<double>(group_.timeout.count()) / 1000;
  if (silent.empty()) {
    fail(call, fmt::format("{} did not come within {} s; it works, waits or hangs elsewhere "
                           "(TANDEM_COMM_TIMEOUT_S sets the time to wait)",
                           who, seconds));
  }
  fail(call, fmt::format("{}; waited {} s", silent, seconds));
}

void GroupCommunicator::throw_if_ended(const Call& call) const {
  if (!membership_->ended()) [[likely]]
    return;
  throw CommError("{} {} ({} axis): {}", operation_name(call.operation), call.label, group_.axis,
                  membership_->reason());
}

}  // namespace tandem
