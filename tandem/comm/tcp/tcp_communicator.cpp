#include "tandem/comm/tcp/tcp_communicator.h"

#include <algorithm>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/comm/places/place_page.h"
#include "tandem/comm/sum.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// What others send to be summed: small enough to stay in the cache until it is.
constexpr int64_t kStagingBytes = 1 << 20;
constexpr int64_t kMinWindow = 64 << 10;
// What comes in goes first, so that little piles up, but must not keep what goes out waiting.
constexpr int kPullsInATurn = 4;
// Sums are made of no less, except at the end.
constexpr int64_t kSumBytes = 16 << 10;

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

std::span<const std::byte> bytes_at(const std::byte* data, int64_t bytes) {
  return {data, static_cast<size_t>(bytes)};
}
std::span<std::byte> bytes_at(std::byte* data, int64_t bytes) { return {data, static_cast<size_t>(bytes)}; }

}  // namespace

TcpCommunicator::TcpCommunicator(Group group, std::shared_ptr<Membership> membership,
                                 std::vector<Links> links, int spin_us)
    : GroupCommunicator(std::move(group), std::move(membership)),
      links_(std::move(links)),
      exchanges_(static_cast<size_t>(size())),
      events_(spin_us),
      sent_(static_cast<size_t>(size())),
      received_(static_cast<size_t>(size())) {
  TANDEM_CHECK(static_cast<int>(links_.size()) == size());
  for_each_peer([&](int peer) {
    events_.add(link(peer).collectives.fd(), static_cast<uint32_t>(peer));
    encrypted_ = link(peer).collectives_tls != nullptr;
  });
  membership_->enroll(this);
}

TcpCommunicator::~TcpCommunicator() { membership_->retire(this); }

int64_t TcpCommunicator::memory_bytes() const { return static_cast<int64_t>(staging_.capacity()); }

// Shutting the connections down tells the peers, should the store be down.
void TcpCommunicator::wake(const std::string&) {
  events_.wake();
  for_each_peer([&](int peer) {
    link(peer).collectives.shut_down();
    link(peer).messages.shut_down();
  });
}

MessageHeader TcpCommunicator::next_header(const Call& call) {
  return {static_cast<uint8_t>(call.operation), round_++, call.bytes, call.label};
}

void TcpCommunicator::begin(int peer, const MessageHeader& header, std::span<const std::byte> out,
                            std::span<std::byte> in, int64_t window) {
  with(peer) = {.out = Outgoing(header, out.data(), static_cast<int64_t>(out.size())),
                .in = Incoming(in.data(), static_cast<int64_t>(in.size()), window)};
}

template <typename Digest>
void TcpCommunicator::finish(const Call& call, const MessageHeader& header, Digest digest) {
  Clock::time_point still_since{};  // unless bytes have just moved
  for (;;) {
    bool moved = false, done = true;
    for_each_peer([&](int peer) { moved |= move(call, header, peer); });
    moved |= digest();
    for_each_peer([&](int peer) { done = done && with(peer).done(); });
    if (done) return;
    if (moved) {
      tell_moved();
      still_since = {};
      continue;
    }
    const Clock::time_point now = Clock::now();
    if (still_since == Clock::time_point{}) still_since = now;
    const milliseconds left = std::chrono::ceil<milliseconds>(still_since + group_.timeout - now);
    if (left.count() <= 0) fail_timeout(call, late_ranks());
    const Wait wait(*this);
    events_.wait(left, [&](uint32_t peer, bool readable, bool writable) {
      Exchange& exchange = exchanges_[peer];
      exchange.readable |= readable;
      exchange.writable |= writable;
    });
    throw_if_ended(call);
  }
}

void TcpCommunicator::finish(const Call& call, const MessageHeader& header) {
  finish(call, header, [] { return false; });
}

bool TcpCommunicator::move(const Call& call, const MessageHeader& header, int peer) {
  Exchange& exchange = with(peer);
  const Wire wire = link(peer).collectives_wire();
  bool moved = false;
  const auto note = [&](Progress progress, bool& ready) {
    if (progress == Progress::Closed) lose(call, peer);
    ready = progress == Progress::Moved;
    moved |= ready;
  };
  for (int i = 0; i < kPullsInATurn && exchange.readable && exchange.in.has_room(); ++i) {
    note(exchange.in.pull(wire), exchange.readable);
    if (exchange.checked || !exchange.in.has_header()) continue;
    check_same_call(call, header, exchange.in.header(), peer);
    exchange.checked = true;
  }
  if (exchange.writable && !exchange.out.done()) note(exchange.out.push(wire), exchange.writable);
  return moved;
}

void TcpCommunicator::check_same_call(const Call& call, const MessageHeader& own, const MessageHeader& theirs,
                                      int peer) {
  if (own == theirs) [[likely]]
    return;
  const auto text = [&](const MessageHeader& header) {
    return fmt::format("{} {} of {} bytes{}", operation_name(static_cast<Operation>(header.operation)),
                       header.label_text(), header.bytes,
                       own.number == theirs.number ? "" : fmt::format(" as its call {}", header.number + 1));
  };
  fail(call, fmt::format("{} calls {} where {} calls {}: their programs differ", name(peer), text(theirs),
                         name(rank()), text(own)));
}

// Those that could have sent more; a rank that waits for the same as this one is not to blame.
std::string TcpCommunicator::late_ranks() const {
  std::string senders, receivers;
  const auto add = [&](std::string& names, int peer) { names += (names.empty() ? "" : ", ") + name(peer); };
  for_each_peer([&](int peer) {
    const Exchange& exchange = exchanges_[static_cast<size_t>(peer)];
    if (exchange.in.has_room()) add(senders, peer);
    if (!exchange.out.done()) add(receivers, peer);
  });
  return senders.empty() ? receivers : senders;
}

// A rank that fails tells why, and closes its connections: whichever comes first.
void TcpCommunicator::lose(const Call& call, int peer) {
  if (membership_->awaited_reason().empty())
    fail(call, fmt::format("{} has closed its connection; its own output says why", name(peer)));
  throw_if_ended(call);
  fail_check(__FILE__, __LINE__, "membership_->ended()", "a reason without an end");
}

// The parts of others come into a window each and are summed as far as all have come.
void TcpCommunicator::do_reduce_scatter(const Call& call, const std::byte* src, const Parts& parts,
                                        DType src_dtype, std::byte* dst, DType dst_dtype, SumInto into) {
  const int64_t src_elem = dtype_bytes(src_dtype), dst_elem = dtype_bytes(dst_dtype);
  const int64_t own_bytes = parts.length(rank());
  const std::byte* own = src + parts.offset(rank());
  const int64_t window = std::clamp(round_up(own_bytes, kSumBytes), kSumBytes,
                                    std::max(kMinWindow, kStagingBytes / size() / kSumBytes * kSumBytes));
  if (static_cast<int64_t>(staging_.size()) < size() * window)
    staging_.resize(static_cast<size_t>(size() * window));
  const auto stage = [&](int peer) { return staging_.data() + peer * window; };

  const MessageHeader header = next_header(call);
  for_each_peer([&](int peer) {
    begin(peer, header, bytes_at(src + parts.offset(peer), parts.length(peer)),
          bytes_at(stage(peer), own_bytes), window);
  });
  std::vector<const std::byte*> pieces(static_cast<size_t>(size()));
  int64_t summed = 0;
  finish(call, header, [&] {
    int64_t come = own_bytes;
    for_each_peer([&](int peer) { come = std::min(come, with(peer).in.bytes()); });
    if (come < own_bytes) come = come / kSumBytes * kSumBytes;
    if (come == summed) return false;
    while (summed < come) {
      const int64_t at = summed % window, bytes = std::min(come - summed, window - at);
      for (int i = 0; i < size(); ++i)
        pieces[static_cast<size_t>(i)] = i == rank() ? own + summed : stage(i) + at;
      sum_parts(pieces, src_dtype, dst + summed / src_elem * dst_elem, dst_dtype, bytes / src_elem, into);
      summed += bytes;
    }
    for_each_peer([&](int peer) { with(peer).in.release(summed); });
    return true;
  });
}

// What was just copied is still in the cache when it is sent.
void TcpCommunicator::do_all_gather(const Call& call, const std::byte* src, std::byte* dst,
                                    const Parts& parts) {
  std::byte* own = dst + parts.offset(rank());
  const int64_t own_bytes = parts.length(rank());
  if (own != src && own_bytes > 0) std::memcpy(own, src, static_cast<size_t>(own_bytes));
  const MessageHeader header = next_header(call);
  for_each_peer([&](int peer) {
    begin(peer, header, bytes_at(own, own_bytes), bytes_at(dst + parts.offset(peer), parts.length(peer)));
  });
  finish(call, header);
}

void TcpCommunicator::do_all_to_all(const Call& call, const std::byte* src, std::byte* dst,
                                    int64_t part_bytes) {
  const MessageHeader header = next_header(call);
  for_each_peer([&](int peer) {
    begin(peer, header, bytes_at(src + peer * part_bytes, part_bytes),
          bytes_at(dst + peer * part_bytes, part_bytes));
  });
  std::memcpy(dst + rank() * part_bytes, src + rank() * part_bytes, static_cast<size_t>(part_bytes));
  finish(call, header);
}

void TcpCommunicator::do_broadcast(const Call& call, std::span<std::byte> data, int root) {
  const MessageHeader header = next_header(call);
  for_each_peer([&](int peer) {
    Exchange exchange;
    if (rank() == root) exchange.out = Outgoing(header, data.data(), call.bytes);
    if (peer == root) exchange.in = Incoming(data.data(), call.bytes, call.bytes);
    with(peer) = exchange;
  });
  finish(call, header);
}

void TcpCommunicator::do_barrier(const Call& call) {
  const MessageHeader header = next_header(call);
  for_each_peer([&](int peer) { begin(peer, header, {}, {}); });
  finish(call, header);
}

void TcpCommunicator::do_send(const Call& call, std::span<const std::byte> data, int peer) {
  Outgoing message(
      {static_cast<uint8_t>(Operation::Send), sent_[static_cast<size_t>(peer)]++, call.bytes, call.label},
      data.data(), call.bytes);
  const Wire wire = link(peer).messages_wire();
  while (!message.done()) {
    const Progress progress = message.push(wire);
    if (progress == Progress::Closed) lose(call, peer);
    if (progress == Progress::Moved) tell_moved();
    if (progress == Progress::Blocked) wait_for(call, wire.fd, true, peer);
  }
}

void TcpCommunicator::do_recv(const Call& call, std::span<std::byte> data, int peer) {
  const uint32_t number = received_[static_cast<size_t>(peer)]++;
  Incoming message(data.data(), call.bytes, call.bytes);
  const Wire wire = link(peer).messages_wire();
  while (!message.done()) {
    const Progress progress = message.pull(wire);
    if (progress == Progress::Closed) lose(call, peer);
    if (progress == Progress::Moved) tell_moved();
    if (progress == Progress::Blocked) wait_for(call, wire.fd, false, peer);
    const MessageHeader& header = message.header();
    if (message.has_header() && (header.bytes != call.bytes || header.number != number)) {
      fail(call, fmt::format("{} sends {} bytes where {} expects {}: their programs differ", name(peer),
                             header.bytes, name(rank()), call.bytes));
    }
  }
}

void TcpCommunicator::wait_for(const Call& call, int fd, bool writable, int peer) {
  const Wait wait(*this);
  const auto deadline = Clock::now() + group_.timeout;
  while (!events_.wait_for(fd, writable, std::chrono::ceil<milliseconds>(deadline - Clock::now()))) {
    if (Clock::now() >= deadline) fail_timeout(call, name(peer));
  }
  throw_if_ended(call);
}

}  // namespace tandem
