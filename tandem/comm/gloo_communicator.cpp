#include "tandem/comm/gloo_communicator.h"

#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/sum.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int64_t kStagingBytes = 8 << 20;  // two rounds of pieces from all other ranks

// Gloo's view of our store. It gives up as soon as the world has ended.
class Rendezvous final : public gloo::rendezvous::Store {
 public:
  Rendezvous(tandem::Store& store, std::string prefix, Membership& membership, const Group& group,
             milliseconds timeout)
      : store_(store),
        prefix_(std::move(prefix)),
        membership_(membership),
        group_(group),
        deadline_(Clock::now() + timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(prefix_ + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    for (milliseconds pause{1};; pause = std::min(2 * pause, milliseconds(4))) {
      if (const auto value = store_.try_get(prefix_ + key))
        return std::vector<char>(value->begin(), value->end());
      if (membership_.ended()) throw CommError("{}", membership_.reason());
      if (Clock::now() > deadline_) throw CommError("connecting: {}", membership_.end_late(owner_of(key)));
      std::this_thread::sleep_for(pause);
    }
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const milliseconds&) override { wait(keys); }

 private:
  // Each rank's addresses are under its number.
  std::string owner_of(const std::string& key) const {
    size_t rank = group_.names.size();
    std::from_chars(key.data(), key.data() + key.size(), rank);
    return rank < group_.names.size() ? group_.names[rank] : fmt::format("who sets key '{}'", key);
  }

  tandem::Store& store_;
  const std::string prefix_;
  Membership& membership_;
  const Group& group_;
  const Clock::time_point deadline_;
};

// Ranks whose programs differ never find a message with the same tag, and time out: Gloo itself would end
// the process at a message of the wrong length.
uint64_t message_tag(bool collective, uint8_t operation, uint32_t count, int64_t bytes) {
  uint64_t mixed = static_cast<uint64_t>(bytes) * 0x9e3779b97f4a7c15u;
  mixed ^= mixed >> 32;
  return static_cast<uint64_t>(collective) << 63 | static_cast<uint64_t>(operation) << 56 |
         (mixed & 0xffffffu) << 32 | count;
}

}  // namespace

// Gloo writes to connections that a peer may have closed, which by default ends the process.
std::shared_ptr<gloo::transport::Device> open_gloo_device(const std::string& address) {
  struct sigaction present {};
  if (sigaction(SIGPIPE, nullptr, &present) == 0 && present.sa_handler == SIG_DFL)
    std::signal(SIGPIPE, SIG_IGN);
  try {
    return gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address.c_str()));
  } catch (const std::exception& error) {
    throw CommError("gloo: cannot use address {}: {}", address, error.what());
  }
}

// A piece of memory with sends or receives under way, between this rank and one other. wake() ends its waits;
// it is known to the communicator from before the first until after the last.
class GlooCommunicator::Transfer {
 public:
  Transfer(GlooCommunicator& owner, const Call& call, int peer, const std::byte* data, int64_t bytes)
      : owner_(owner), call_(call), peer_(peer) {
    buffer_ = owner.context_->createUnboundBuffer(const_cast<std::byte*>(data), static_cast<size_t>(bytes));
    std::lock_guard lock(owner_.mutex_);
    owner_.transfers_.push_back(this);
  }
  ~Transfer() {
    std::lock_guard lock(owner_.mutex_);
    std::erase(owner_.transfers_, this);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  void send(uint64_t tag, int64_t offset, int64_t bytes) {
    guard([&] {
      buffer_->send(peer_, tag, static_cast<size_t>(offset), static_cast<size_t>(bytes));
      return true;
    });
    ++num_pending_;
  }
  void recv(uint64_t tag, int64_t offset, int64_t bytes) {
    guard([&] {
      buffer_->recv(peer_, tag, static_cast<size_t>(offset), static_cast<size_t>(bytes));
      return true;
    });
    ++num_pending_;
  }
  void wait_send() {  // for all of them
    for (; num_pending_ > 0; --num_pending_) guard([&] { return buffer_->waitSend(owner_.group_.timeout); });
  }
  void wait_recv() {  // for one
    guard([&] { return buffer_->waitRecv(owner_.group_.timeout); });
    --num_pending_;
  }
  void abort() {
    buffer_->abortWaitSend();
    buffer_->abortWaitRecv();
  }

 private:
  // Whatever Gloo throws means that this pair, or another one of the context, is closed.
  template <typename Action>
  void guard(Action action) {
    owner_.throw_if_ended(call_);
    const auto start = Clock::now();
    try {
      if (action()) return;
    } catch (const std::exception&) {
      if (owner_.membership_->ended()) owner_.throw_if_ended(call_);
      const std::string& name = owner_.group_.names[static_cast<size_t>(peer_)];
      if (Clock::now() - start >= owner_.group_.timeout) owner_.fail_timeout(call_, name);
      if (owner_.membership_->awaited_reason().empty()) {
        owner_.fail(call_, fmt::format("{} has closed its connection; its own output says why", name));
      }
    }
    owner_.throw_if_ended(call_);
  }

  GlooCommunicator& owner_;
  const Call& call_;
  const int peer_;
  int num_pending_ = 0;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
};

GlooCommunicator::GlooCommunicator(Group group, std::shared_ptr<Membership> membership,
                                   std::shared_ptr<gloo::transport::Device> device, Store& store,
                                   const std::string& prefix, milliseconds connect_timeout)
    : GroupCommunicator(std::move(group), std::move(membership)),
      sent_(static_cast<size_t>(size())),
      received_(static_cast<size_t>(size())) {
  auto context = std::make_shared<gloo::rendezvous::Context>(rank(), size());
  context->setTimeout(std::max(connect_timeout / 5, milliseconds(1)));  // Gloo waits five times as long
  Rendezvous rendezvous(store, prefix, *membership_, group_, connect_timeout);
  try {
    context->connectFullMesh(rendezvous, device);
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    std::string reason = membership_->awaited_reason();
    if (reason.empty()) reason = membership_->silent_ranks();
    throw CommError("gloo ({} axis): the ranks cannot connect with each other: {}", group_.axis,
                    reason.empty() ? error.what() : reason);
  }
  context_ = std::move(context);
  membership_->enroll(this);
}

GlooCommunicator::~GlooCommunicator() { membership_->retire(this); }

int64_t GlooCommunicator::memory_bytes() const { return static_cast<int64_t>(staging_.capacity()); }

// Closing the connections tells the peers, should the store be down.
void GlooCommunicator::wake(const std::string&) {
  {
    std::lock_guard lock(mutex_);
    for (Transfer* transfer : transfers_) transfer->abort();
  }
  context_->closeConnections();
}

uint64_t GlooCommunicator::collective_tag(const Call& call) {
  return message_tag(true, static_cast<uint8_t>(call.operation), round_++, call.bytes);
}

template <typename Out, typename In>
void GlooCommunicator::exchange(const Call& call, Out out, In in) {
  const uint64_t tag = collective_tag(call);
  std::vector<std::unique_ptr<Transfer>> sends, receives;
  for (int i = 1; i < size(); ++i) {
    const int source = (rank() + size() - i) % size(), target = (rank() + i) % size();
    if (const Piece piece = in(source); piece.bytes > 0) {
      receives.push_back(std::make_unique<Transfer>(*this, call, source, piece.data, piece.bytes));
      receives.back()->recv(tag, 0, piece.bytes);
    }
    if (const Piece piece = out(target); piece.bytes > 0) {
      sends.push_back(std::make_unique<Transfer>(*this, call, target, piece.data, piece.bytes));
      sends.back()->send(tag, 0, piece.bytes);
    }
  }
  for (const auto& transfer : receives) transfer->wait_recv();
  for (const auto& transfer : sends) transfer->wait_send();
}

// Rounds of pieces: those of the next round are on their way while this round's are summed.
void GlooCommunicator::do_reduce_scatter(const Call& call, const std::byte* src, const Parts& parts,
                                         DType src_dtype, std::byte* dst, DType dst_dtype, bool accumulate) {
  const int64_t src_elem = dtype_bytes(src_dtype), dst_elem = dtype_bytes(dst_dtype);
  const int64_t piece_bytes =
      std::clamp<int64_t>(kStagingBytes / 2 / size() / 64 * 64, 64, std::max<int64_t>(64, parts.part_bytes));
  const int64_t num_rounds = (parts.part_bytes + piece_bytes - 1) / piece_bytes;
  const auto length = [&](int part, int64_t round) {
    return std::clamp<int64_t>(parts.length(part) - round * piece_bytes, 0, piece_bytes);
  };
  const auto stage = [&](int peer, int64_t round) { return (peer * 2 + round % 2) * piece_bytes; };
  staging_.resize(static_cast<size_t>(
      std::max<int64_t>(static_cast<int64_t>(staging_.size()), 2 * size() * piece_bytes)));

  std::vector<std::unique_ptr<Transfer>> sends(static_cast<size_t>(size())),
      receives(static_cast<size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    sends[static_cast<size_t>(peer)] =
        std::make_unique<Transfer>(*this, call, peer, src + parts.offset(peer), parts.length(peer));
    receives[static_cast<size_t>(peer)] =
        std::make_unique<Transfer>(*this, call, peer, staging_.data(), static_cast<int64_t>(staging_.size()));
  }
  const auto start = [&](int64_t round) {
    const uint64_t tag = collective_tag(call);
    for (int i = 1; i < size(); ++i) {
      const int source = (rank() + size() - i) % size(), target = (rank() + i) % size();
      if (length(rank(), round) > 0)
        receives[static_cast<size_t>(source)]->recv(tag, stage(source, round), length(rank(), round));
      if (length(target, round) > 0)
        sends[static_cast<size_t>(target)]->send(tag, round * piece_bytes, length(target, round));
    }
  };
  std::vector<const std::byte*> pieces(static_cast<size_t>(size()));
  start(0);
  for (int64_t round = 0; round < num_rounds; ++round) {
    if (round + 1 < num_rounds) start(round + 1);
    const int64_t num_elems = length(rank(), round) / src_elem;
    if (num_elems == 0) continue;
    for (int peer = 0; peer < size(); ++peer) {
      const bool own = peer == rank();
      if (!own) receives[static_cast<size_t>(peer)]->wait_recv();
      pieces[static_cast<size_t>(peer)] =
          own ? src + parts.offset(peer) + round * piece_bytes : staging_.data() + stage(peer, round);
    }
    sum_parts(pieces, src_dtype, dst + round * piece_bytes / src_elem * dst_elem, dst_dtype, num_elems,
              accumulate);
  }
  for (const auto& transfer : sends) {
    if (transfer) transfer->wait_send();
  }
}

void GlooCommunicator::do_all_gather(const Call& call, const std::byte* src, std::byte* dst,
                                     const Parts& parts) {
  std::byte* own = dst + parts.offset(rank());
  const int64_t own_bytes = parts.length(rank());
  if (own != src && own_bytes > 0) std::memcpy(own, src, static_cast<size_t>(own_bytes));
  exchange(
      call,
      [&](int) {
        return Piece{own, own_bytes};
      },
      [&](int peer) {
        return Piece{dst + parts.offset(peer), parts.length(peer)};
      });
}

void GlooCommunicator::do_all_to_all(const Call& call, const std::byte* src, std::byte* dst,
                                     int64_t part_bytes) {
  std::memcpy(dst + rank() * part_bytes, src + rank() * part_bytes, static_cast<size_t>(part_bytes));
  exchange(
      call,
      [&](int peer) {
        return Piece{const_cast<std::byte*>(src) + peer * part_bytes, part_bytes};
      },
      [&](int peer) {
        return Piece{dst + peer * part_bytes, part_bytes};
      });
}

void GlooCommunicator::do_broadcast(const Call& call, std::span<std::byte> data, int root) {
  const Piece all{data.data(), static_cast<int64_t>(data.size())};
  exchange(
      call, [&](int) { return rank() == root ? all : Piece{}; },
      [&](int peer) { return peer == root ? all : Piece{}; });
}

void GlooCommunicator::do_barrier(const Call& call) {
  std::byte mine{};
  std::vector<std::byte> theirs(static_cast<size_t>(size()));
  exchange(
      call,
      [&](int) {
        return Piece{&mine, 1};
      },
      [&](int peer) {
        return Piece{&theirs[static_cast<size_t>(peer)], 1};
      });
}

void GlooCommunicator::do_send(const Call& call, std::span<const std::byte> data, int peer) {
  const uint32_t count = sent_[static_cast<size_t>(peer)]++;
  Transfer transfer(*this, call, peer, data.data(), call.bytes);
  transfer.send(message_tag(false, 0, count, call.bytes), 0, call.bytes);
  transfer.wait_send();
}

void GlooCommunicator::do_recv(const Call& call, std::span<std::byte> data, int peer) {
  const uint32_t count = received_[static_cast<size_t>(peer)]++;
  Transfer transfer(*this, call, peer, data.data(), call.bytes);
  transfer.recv(message_tag(false, 0, count, call.bytes), 0, call.bytes);
  transfer.wait_recv();
}

}  // namespace tandem
