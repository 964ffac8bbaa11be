#include "tandem/comm/window_communicator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "tandem/base/error.h"
#include "tandem/comm/stream_copy.h"
#include "tandem/comm/sum.h"

namespace tandem {
namespace {

constexpr uint32_t kSlots = 2;
constexpr int64_t kSlotBytes = 256 << 10;
constexpr uint32_t kMailSlots = 4;
constexpr int64_t kMailSlotBytes = 64 << 10;
constexpr int64_t kPage = 4096;
constexpr uint64_t kBytesMask = (uint64_t{1} << 56) - 1;
// A sleeper is woken by whoever brings what it waits for; this is how often it looks for other news.
constexpr std::chrono::milliseconds kSleepAtMost{50};

int64_t whole_pages(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

// The first failure in the group, for the case that the store through which it is told is down.
struct WindowCommunicator::Header {
  static constexpr size_t kReasonBytes = 1000;
  std::atomic<uint32_t> state;  // 0: works, 1: the reason is being written, 2: it is there
  char reason[kReasonBytes];
};

struct WindowCommunicator::Seat {
  SharedCounter written, consumed;      // rounds
  std::atomic<uint64_t> calls[kSlots];  // signature() of the call that the slot's round belongs to
  std::atomic<uint32_t> left;
};

struct WindowCommunicator::Mailbox {
  SharedCounter written, consumed;  // chunks
  std::atomic<int64_t> message_bytes[kMailSlots];
};

namespace {
constexpr int64_t kHeaderBytes = 1024, kSeatBytes = 256, kMailboxBytes = 192;

int64_t control_bytes(int64_t n) {
  return whole_pages(kHeaderBytes + n * kSeatBytes + n * n * kMailboxBytes, kPage);
}
}  // namespace

int64_t WindowCommunicator::region_bytes(int num_ranks) {
  static_assert(sizeof(Header) <= kHeaderBytes && sizeof(Seat) <= kSeatBytes &&
                sizeof(Mailbox) <= kMailboxBytes);
  const int64_t n = num_ranks;
  return control_bytes(n) + n * kSlots * kSlotBytes + n * n * kMailSlots * kMailSlotBytes;
}

WindowCommunicator::WindowCommunicator(Group group, std::shared_ptr<Membership> membership,
                                       std::shared_ptr<SharedRegion> region, int spin_us,
                                       std::string description)
    : GroupCommunicator(std::move(group), std::move(membership)),
      region_(std::move(region)),
      spin_us_(spin_us),
      description_(std::move(description)),
      sent_(static_cast<size_t>(size())),
      received_(static_cast<size_t>(size())),
      pieces_(static_cast<size_t>(size())) {
  TANDEM_CHECK(region_->bytes() == region_bytes(size()));
  membership_->enroll(this);
}

WindowCommunicator::~WindowCommunicator() {
  membership_->retire(this);
  seat(rank()).left.store(1, std::memory_order_release);
  wake_sleepers();
}

int64_t WindowCommunicator::memory_bytes() const {
  int64_t bytes = control_bytes(size()) / size() + kSlots * kSlotBytes;
  for (int peer = 0; peer < size(); ++peer) {
    const uint32_t chunks = mailbox(rank(), peer).written.value.load(std::memory_order_relaxed);
    bytes += std::min(chunks, kMailSlots) * kMailSlotBytes;
  }
  return bytes;
}

WindowCommunicator::Header& WindowCommunicator::header() const {
  return *std::launder(reinterpret_cast<Header*>(region_->data()));
}
WindowCommunicator::Seat& WindowCommunicator::seat(int rank) const {
  return *std::launder(reinterpret_cast<Seat*>(region_->data() + kHeaderBytes + rank * kSeatBytes));
}
WindowCommunicator::Mailbox& WindowCommunicator::mailbox(int from, int to) const {
  const int64_t index = static_cast<int64_t>(from) * size() + to;
  return *std::launder(reinterpret_cast<Mailbox*>(region_->data() + kHeaderBytes + size() * kSeatBytes +
                                                  index * kMailboxBytes));
}
std::byte* WindowCommunicator::window(int rank, uint32_t slot) const {
  return region_->data() + control_bytes(size()) + (static_cast<int64_t>(rank) * kSlots + slot) * kSlotBytes;
}
std::byte* WindowCommunicator::mail(int from, int to, uint32_t slot) const {
  const int64_t index = (static_cast<int64_t>(from) * size() + to) * kMailSlots + slot;
  return region_->data() + control_bytes(size()) + size() * kSlots * kSlotBytes + index * kMailSlotBytes;
}

// The world has ended: also tells the ranks of this group, in case the store cannot.
void WindowCommunicator::wake(const std::string& reason) {
  uint32_t works = 0;
  if (header().state.compare_exchange_strong(works, 1)) {
    const size_t length = std::min(reason.size(), Header::kReasonBytes - 1);
    std::memcpy(header().reason, reason.data(), length);
    header().reason[length] = 0;
    header().state.store(2, std::memory_order_release);
  }
  wake_sleepers();
}

void WindowCommunicator::wake_sleepers() {
  for (int i = 0; i < size(); ++i) {
    seat(i).written.wake_all();
    seat(i).consumed.wake_all();
    for (SharedCounter* counter : {&mailbox(rank(), i).written, &mailbox(rank(), i).consumed,
                                   &mailbox(i, rank()).written, &mailbox(i, rank()).consumed}) {
      counter->wake_all();
    }
  }
}

// What has been brought counts even when whoever brought it is gone, so the counter is looked at last.
void WindowCommunicator::await(const Call& call, SharedCounter& counter, uint32_t target, int peer) {
  if (counter.spin(target, spin_us_)) return;
  const Wait wait(*this);
  const auto deadline = std::chrono::steady_clock::now() + group_.timeout;
  for (;;) {
    const bool ended = membership_->ended();
    const bool told = header().state.load(std::memory_order_acquire) == 2;
    const bool left = seat(peer).left.load(std::memory_order_acquire) != 0;
    const auto remaining =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (counter.reached(target)) return;
    if (ended) throw_if_ended(call);
    if (told) fail(call, header().reason);
    if (left)
      fail(call, fmt::format("{} has left the group; its own output says why",
                             group_.names[static_cast<size_t>(peer)]));
    if (remaining.count() <= 0) fail_timeout(call, late_ranks(target, &counter == &seat(peer).written, peer));
    if (counter.sleep(target, std::min(kSleepAtMost, remaining))) return;
  }
}

// Who is behind in this round, if it is one; a rank that waits for the same as this one is not to blame.
std::string WindowCommunicator::late_ranks(uint32_t target, bool in_round, int peer) const {
  std::string names;
  for (int i = 0; in_round && i < size(); ++i) {
    if (i == rank() || seat(i).written.reached(target)) continue;
    if (!names.empty()) names += ", ";
    names += group_.names[static_cast<size_t>(i)];
  }
  return names.empty() ? group_.names[static_cast<size_t>(peer)] : names;
}

void WindowCommunicator::check_same_call(const Call& call, int peer, uint32_t slot) {
  const uint64_t theirs = seat(peer).calls[slot].load(std::memory_order_relaxed);
  if (theirs == signature(call)) [[likely]]
    return;
  const auto operation = static_cast<Operation>(theirs >> 56);
  fail(call,
       fmt::format("{} calls {} of {} bytes where {} calls {} of {} bytes: their programs differ",
                   group_.names[static_cast<size_t>(peer)], operation_name(operation), theirs & kBytesMask,
                   group_.names[static_cast<size_t>(rank())], operation_name(call.operation), call.bytes));
}

uint64_t WindowCommunicator::signature(const Call& call) {
  return static_cast<uint64_t>(call.operation) << 56 | (static_cast<uint64_t>(call.bytes) & kBytesMask);
}

template <typename Write, typename Read>
void WindowCommunicator::round(const Call& call, Write write, Read read) {
  const uint32_t next = ++round_, slot = next % kSlots;
  Seat& own = seat(rank());
  for (int i = 1; i < size(); ++i) {  // all have read what the slot held
    const int peer = (rank() + i) % size();
    await(call, seat(peer).consumed, next - kSlots, peer);
  }
  write(slot);
  own.calls[slot].store(signature(call), std::memory_order_relaxed);
  own.written.publish(next);
  for (int i = 1; i < size(); ++i) {
    const int peer = (rank() + i) % size();
    await(call, seat(peer).written, next, peer);
    check_same_call(call, peer, slot);
  }
  read(slot);
  own.consumed.publish(next);
}

// In a round each rank writes one piece for every other rank.
void WindowCommunicator::do_reduce_scatter(const Call& call, const std::byte* src, const Parts& parts,
                                           DType src_dtype, std::byte* dst, DType dst_dtype, SumInto into) {
  const int64_t piece_bytes = kSlotBytes / size() / 64 * 64;
  const int64_t src_elem = dtype_bytes(src_dtype), dst_elem = dtype_bytes(dst_dtype);
  for (int64_t first = 0; first < parts.part_bytes; first += piece_bytes) {
    const auto length = [&](int part) {
      return std::clamp<int64_t>(parts.length(part) - first, 0, piece_bytes);
    };
    round(
        call,
        [&](uint32_t slot) {
          for (int i = 1; i < size(); ++i) {
            const int peer = (rank() + i) % size();
            stream_copy(window(rank(), slot) + peer * piece_bytes, src + parts.offset(peer) + first,
                        static_cast<size_t>(length(peer)));
          }
        },
        [&](uint32_t slot) {
          for (int i = 0; i < size(); ++i) {
            pieces_[static_cast<size_t>(i)] =
                i == rank() ? src + parts.offset(i) + first : window(i, slot) + rank() * piece_bytes;
          }
          const int64_t num_elems = length(rank()) / src_elem;
          if (num_elems > 0) {
            sum_parts(pieces_, src_dtype, dst + first / src_elem * dst_elem, dst_dtype, num_elems, into);
          }
        });
  }
}

void WindowCommunicator::do_all_gather(const Call& call, const std::byte* src, std::byte* dst,
                                       const Parts& parts) {
  const size_t own_bytes = static_cast<size_t>(parts.length(rank()));
  std::byte* own = dst + parts.offset(rank());
  if (own != src && own_bytes > 0) std::memcpy(own, src, own_bytes);
  for (int64_t first = 0; first < parts.part_bytes; first += kSlotBytes) {
    const auto length = [&](int part) {
      return static_cast<size_t>(std::clamp<int64_t>(parts.length(part) - first, 0, kSlotBytes));
    };
    round(
        call, [&](uint32_t slot) { stream_copy(window(rank(), slot), own + first, length(rank())); },
        [&](uint32_t slot) {
          for (int i = 1; i < size(); ++i) {
            const int peer = (rank() + i) % size();
            std::memcpy(dst + parts.offset(peer) + first, window(peer, slot), length(peer));
          }
        });
  }
}

void WindowCommunicator::do_all_to_all(const Call& call, const std::byte* src, std::byte* dst,
                                       int64_t part_bytes) {
  std::memcpy(dst + rank() * part_bytes, src + rank() * part_bytes, static_cast<size_t>(part_bytes));
  const int64_t piece_bytes = kSlotBytes / size() / 64 * 64;
  for (int64_t first = 0; first < part_bytes; first += piece_bytes) {
    const size_t length = static_cast<size_t>(std::min(piece_bytes, part_bytes - first));
    round(
        call,
        [&](uint32_t slot) {
          for (int i = 1; i < size(); ++i) {
            const int peer = (rank() + i) % size();
            stream_copy(window(rank(), slot) + peer * piece_bytes, src + peer * part_bytes + first, length);
          }
        },
        [&](uint32_t slot) {
          for (int i = 1; i < size(); ++i) {
            const int peer = (rank() + i) % size();
            std::memcpy(dst + peer * part_bytes + first, window(peer, slot) + rank() * piece_bytes, length);
          }
        });
  }
}

void WindowCommunicator::do_broadcast(const Call& call, std::span<std::byte> data, int root) {
  for (size_t first = 0; first < data.size(); first += kSlotBytes) {
    const size_t length = std::min<size_t>(kSlotBytes, data.size() - first);
    round(
        call,
        [&](uint32_t slot) {
          if (rank() == root) stream_copy(window(root, slot), data.data() + first, length);
        },
        [&](uint32_t slot) {
          if (rank() != root) std::memcpy(data.data() + first, window(root, slot), length);
        });
  }
}

void WindowCommunicator::do_barrier(const Call& call) {
  round(
      call, [](uint32_t) {}, [](uint32_t) {});
}

void WindowCommunicator::do_send(const Call& call, std::span<const std::byte> data, int peer) {
  Mailbox& box = mailbox(rank(), peer);
  for (size_t first = 0; first < data.size(); first += kMailSlotBytes) {
    const uint32_t next = ++sent_[static_cast<size_t>(peer)], slot = next % kMailSlots;
    await(call, box.consumed, next - kMailSlots, peer);
    stream_copy(mail(rank(), peer, slot), data.data() + first,
                std::min<size_t>(kMailSlotBytes, data.size() - first));
    box.message_bytes[slot].store(call.bytes, std::memory_order_relaxed);
    box.written.publish(next);
  }
}

void WindowCommunicator::do_recv(const Call& call, std::span<std::byte> data, int peer) {
  Mailbox& box = mailbox(peer, rank());
  for (size_t first = 0; first < data.size(); first += kMailSlotBytes) {
    const uint32_t next = ++received_[static_cast<size_t>(peer)], slot = next % kMailSlots;
    await(call, box.written, next, peer);
    const int64_t message_bytes = box.message_bytes[slot].load(std::memory_order_relaxed);
    if (message_bytes != call.bytes) {
      fail(call, fmt::format("{} sends {} bytes where {} expects {}: their programs differ",
                             group_.names[static_cast<size_t>(peer)], message_bytes,
                             group_.names[static_cast<size_t>(rank())], call.bytes));
    }
    std::memcpy(data.data() + first, mail(peer, rank(), slot),
                std::min<size_t>(kMailSlotBytes, data.size() - first));
    box.consumed.publish(next);
  }
}

}  // namespace tandem
