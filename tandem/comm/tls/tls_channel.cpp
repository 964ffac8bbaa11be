#include "tandem/comm/tls/tls_channel.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr size_t kRecord = 16 << 10;                   // the most that TLS encrypts at once
constexpr int64_t kBytesWithAKey = int64_t{64} << 30;  // AES-GCM allows some 2^24 records
constexpr size_t kBindingBytes = 32;

// OpenSSL's own sockets would end the process with SIGPIPE.
int bio_fd(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int bio_write(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  ssize_t moved = 0;
  do {
    moved = ::send(bio_fd(bio), bytes, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (moved < 0 && errno == EINTR);
  if (moved < 0 && errno == EAGAIN) BIO_set_retry_write(bio);
  return static_cast<int>(moved);
}

int bio_read(BIO* bio, char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  ssize_t moved = 0;
  do {
    moved = ::recv(bio_fd(bio), bytes, static_cast<size_t>(size), MSG_DONTWAIT);
  } while (moved < 0 && errno == EINTR);
  if (moved < 0 && errno == EAGAIN) BIO_set_retry_read(bio);
  return static_cast<int>(moved);
}

long bio_control(BIO* /*bio*/, int command, long /*number*/, void* /*data*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* socket_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tandem socket");
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_ctrl(made, bio_control);
    return made;
  }();
  return method;
}

bool wait_until_ready(int fd, short events, Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  pollfd entry{fd, events, 0};
  return left.count() > 0 &&
         ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left.count(), 1000000))) >= 0;
}

}  // namespace

void TlsChannel::Free::operator()(SSL* ssl) const { SSL_free(ssl); }

TlsChannel::TlsChannel(const TlsContext& context, const Socket& socket, Side side, const Secret& secret,
                       const std::string& purpose, Deadline deadline)
    : fd_(socket.fd()), ssl_(SSL_new(context.get())) {
  BIO* bio = BIO_new(socket_method());
  if (!ssl_ || bio == nullptr) throw CommError("tls: {}", tls_problem("OpenSSL does not start"));
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd_)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  side == Side::Server ? SSL_set_accept_state(ssl_.get()) : SSL_set_connect_state(ssl_.get());
  complete([&] { return SSL_do_handshake(ssl_.get()); }, deadline, "no agreement on keys");
  prove(secret, side, purpose, deadline);
}

TlsChannel::~TlsChannel() = default;

// Until the action has succeeded.
template <typename Do>
void TlsChannel::complete(Do action, Deadline deadline, const char* what) {
  for (;;) {
    ERR_clear_error();
    const int result = action();
    if (result > 0) return;
    const int error = SSL_get_error(ssl_.get(), result);
    const bool waits = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
    if (waits && wait_until_ready(fd_, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline)) continue;
    if (waits) throw CommError("tls: {}: no answer in time", what);
    const long verified = SSL_get_verify_result(ssl_.get());
    if (verified != X509_V_OK)
      throw CommError("tls: {}: its certificate is refused: {}", what,
                      X509_verify_cert_error_string(verified));
    throw BrokenOff("tls: {}", tls_problem(what));
  }
}

void TlsChannel::prove(const Secret& secret, Side side, const std::string& purpose, Deadline deadline) {
  constexpr std::string_view kLabel = "EXPORTER-tandem-link";
  unsigned char binding[kBindingBytes];
  if (SSL_export_keying_material(ssl_.get(), binding, sizeof binding, kLabel.data(), kLabel.size(), nullptr,
                                 0, 0) != 1)
    throw CommError("tls: {}", tls_problem("the connection has no name of its own"));
  const std::string bound =
      purpose + " over tls " + std::string(reinterpret_cast<const char*>(binding), sizeof binding);
  Handshake handshake(secret, side, bound);
  const auto say = [&](const std::string& words) {
    if (words.empty()) return;
    complete([&] { return SSL_write(ssl_.get(), words.data(), static_cast<int>(words.size())); }, deadline,
             "it does not hear the proof");
  };
  say(handshake.opening());
  while (!handshake.over()) {
    std::string heard(handshake.num_wanted(), '\0');
    for (size_t at = 0; at < heard.size();) {
      size_t more = 0;
      complete([&] { return SSL_read_ex(ssl_.get(), heard.data() + at, heard.size() - at, &more); }, deadline,
               "it does not give the proof");
      at += more;
    }
    say(handshake.take(heard));
  }
  if (!handshake.known()) throw CommError("tls: {}", handshake.problem());
}

ssize_t TlsChannel::send(std::span<const std::byte> bytes) {
  const std::scoped_lock lock(mutex_);
  if (sent_with_key_ > kBytesWithAKey) {
    SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
    sent_with_key_ = 0;
  }
  ERR_clear_error();
  size_t moved = 0;
  const int result = SSL_write_ex(ssl_.get(), bytes.data(), std::min(bytes.size(), kRecord), &moved);
  if (result > 0) {
    sent_with_key_ += static_cast<int64_t>(moved);
    return static_cast<ssize_t>(moved);
  }
  const int error = SSL_get_error(ssl_.get(), result);
  errno = error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ ? EAGAIN : ECONNRESET;
  return -1;
}

ssize_t TlsChannel::receive(std::span<std::byte> bytes) {
  const std::scoped_lock lock(mutex_);
  ERR_clear_error();
  size_t moved = 0;
  const int result = SSL_read_ex(ssl_.get(), bytes.data(), bytes.size(), &moved);
  if (result > 0) return static_cast<ssize_t>(moved);
  const int error = SSL_get_error(ssl_.get(), result);
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
  return -1;
}

}  // namespace tandem
