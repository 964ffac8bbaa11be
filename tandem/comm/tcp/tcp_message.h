// Messages on tcp connections that do not block: a header, which says what the message belongs to, then bytes
// that go straight from and into the caller's memory. One call of push or pull is one call of the kernel's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem {

// As it travels; the hosts of a run have one byte order.
struct MessageHeader {
  static constexpr size_t kLabelBytes = 47;

  MessageHeader() = default;
  MessageHeader(uint8_t operation, uint32_t number, int64_t bytes, std::string_view label);
  std::string_view label_text() const;
  bool operator==(const MessageHeader&) const = default;

  int64_t bytes = 0;    // of the call that it belongs to, as its callers gave them
  uint32_t number = 0;  // of messages so far, or of collectives
  uint8_t operation = 0;
  char label[kLabelBytes] = {};  // its beginning
  uint32_t magic = kMagic;

  static constexpr uint32_t kMagic = 0x316d6474;
};
static_assert(sizeof(MessageHeader) == 64);

class TlsChannel;

// Where the bytes of a message go: a socket, or what encrypts them before they get there.
struct Wire {
  Wire(int socket, TlsChannel* channel = nullptr) : fd(socket), tls(channel) {}  // NOLINT: mostly a socket
  int fd;
  TlsChannel* tls;
};

enum class Progress : uint8_t { Moved, Blocked, Closed };

class Outgoing {
 public:
  Outgoing() = default;  // nothing to send
  Outgoing(const MessageHeader& header, const std::byte* data, int64_t bytes);
  bool done() const { return sent_ == total_; }
  Progress push(const Wire& wire);

 private:
  MessageHeader header_;
  const std::byte* data_ = nullptr;
  int64_t sent_ = 0, total_ = 0;  // header included
};

class Incoming {
 public:
  Incoming() = default;  // nothing to come
  // `bytes` to come into `memory`, of which there are only `window` (not 0): once it is full, no more is read
  // until the first of them are released, and the message goes on at the front.
  Incoming(std::byte* memory, int64_t bytes, int64_t window);
  bool done() const { return received_ == total_; }
  bool has_header() const { return received_ >= kHeader; }
  const MessageHeader& header() const { return header_; }
  int64_t bytes() const { return has_header() ? received_ - kHeader : 0; }  // that have come
  bool has_room() const { return !done() && bytes() < released_ + window_; }
  void release(int64_t bytes) {
    released_ = bytes;
  }  // the first `bytes` of the message are not needed any more
  Progress pull(const Wire& wire);

 private:
  static constexpr int64_t kHeader = sizeof(MessageHeader);
  MessageHeader header_;
  std::byte* memory_ = nullptr;
  int64_t window_ = 1, released_ = 0;
  int64_t received_ = 0, total_ = 0;  // header included
};

}  // namespace tandem
