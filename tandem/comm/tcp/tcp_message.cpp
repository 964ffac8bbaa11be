#include "tandem/comm/tcp/tcp_message.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "tandem/comm/tls/tls_channel.h"

namespace tandem {
namespace {

// Of one call of the kernel's. What is read at once is still in the cache when it is summed.
constexpr int64_t kPushBytes = 1 << 20, kPullBytes = 256 << 10;

template <typename Call>
ssize_t without_interruption(Call call) {
  for (;;) {
    const ssize_t result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

struct Pieces {  // of memory, at most the rest of a header and some data
  iovec list[2];
  size_t count = 0;
  void add(const void* data, int64_t bytes) {
    if (bytes > 0) list[count++] = {const_cast<void*>(data), static_cast<size_t>(bytes)};
  }
  std::span<std::byte> first() const {
    return count == 0 ? std::span<std::byte>()
                      : std::span(static_cast<std::byte*>(list[0].iov_base), list[0].iov_len);
  }
  msghdr message() {
    msghdr header{};
    header.msg_iov = list;
    header.msg_iovlen = count;
    return header;
  }
};

}  // namespace

MessageHeader::MessageHeader(uint8_t operation, uint32_t number, int64_t bytes, std::string_view label)
    : bytes(bytes), number(number), operation(operation) {
  std::memcpy(this->label, label.data(), std::min(label.size(), kLabelBytes));
}

std::string_view MessageHeader::label_text() const { return {label, strnlen(label, kLabelBytes)}; }

Outgoing::Outgoing(const MessageHeader& header, const std::byte* data, int64_t bytes)
    : header_(header), data_(data), total_(static_cast<int64_t>(sizeof(header)) + bytes) {}

Progress Outgoing::push(const Wire& wire) {
  constexpr int64_t kHeader = sizeof(MessageHeader);
  Pieces pieces;
  if (sent_ < kHeader) pieces.add(reinterpret_cast<const std::byte*>(&header_) + sent_, kHeader - sent_);
  const int64_t first = std::max<int64_t>(0, sent_ - kHeader);
  pieces.add(data_ + first, std::min(kPushBytes, total_ - kHeader - first));
  const msghdr message = pieces.message();
  const ssize_t moved = wire.tls != nullptr ? wire.tls->send(pieces.first()) : without_interruption([&] {
    return sendmsg(wire.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
  if (moved < 0) return would_block() ? Progress::Blocked : Progress::Closed;
  sent_ += moved;
  return Progress::Moved;
}

Incoming::Incoming(std::byte* memory, int64_t bytes, int64_t window)
    : memory_(memory), window_(window), total_(kHeader + bytes) {}

Progress Incoming::pull(const Wire& wire) {
  Pieces pieces;
  if (received_ < kHeader)
    pieces.add(reinterpret_cast<std::byte*>(&header_) + received_, kHeader - received_);
  const int64_t at = bytes() % window_;
  pieces.add(memory_ + at,
             std::min({kPullBytes, window_ - at, total_ - kHeader - bytes(), released_ + window_ - bytes()}));
  msghdr message = pieces.message();
  const ssize_t moved = wire.tls != nullptr
                            ? wire.tls->receive(pieces.first())
                            : without_interruption([&] { return recvmsg(wire.fd, &message, MSG_DONTWAIT); });
  if (moved < 0) return would_block() ? Progress::Blocked : Progress::Closed;
  if (moved == 0) return Progress::Closed;
  received_ += moved;
  return Progress::Moved;
}

}  // namespace tandem
