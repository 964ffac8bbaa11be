// A connection whose bytes are encrypted, over a socket that does not block. One thread may send while
// another receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "tandem/base/error.h"
#include "tandem/comm/handshake.h"
#include "tandem/comm/tcp/tcp_socket.h"
#include "tandem/comm/tls/tls_context.h"

using SSL = struct ssl_st;

namespace tandem {

// The other side has broken off: it knows more about why than this one was told.
struct BrokenOff : CommError {
  using CommError::CommError;
};

class TlsChannel {
 public:
  // Both sides agree on keys, then each shows the other that it knows the secret, for `purpose` and on this
  // very connection: who stands between them has two others. The socket stays the caller's and outlives it.
  // Throws CommError saying what is wrong; BrokenOff where the other side should say it.
  TlsChannel(const TlsContext& context, const Socket& socket, Side side, const Secret& secret,
             const std::string& purpose, Deadline deadline);
  ~TlsChannel();

  // As the calls of the kernel's: bytes that were moved; -1 with errno EAGAIN where it would block, with
  // another where the connection is lost; receive: 0 where the other side has closed it.
  ssize_t send(std::span<const std::byte> bytes);
  ssize_t receive(std::span<std::byte> bytes);

 private:
  template <typename Do>
  void complete(Do action, Deadline deadline, const char* what);
  void prove(const Secret& secret, Side side, const std::string& purpose, Deadline deadline);

  struct Free {
    void operator()(SSL* ssl) const;
  };
  const int fd_;
  std::mutex mutex_;  // OpenSSL allows one thread at a time
  int64_t sent_with_key_ = 0;
  std::unique_ptr<SSL, Free> ssl_;
};

}  // namespace tandem
