#include "tandem/comm/handshake.h"

#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"

namespace tandem {
namespace {

constexpr std::string_view kMagic = "tandem 1";
constexpr size_t kNonceBytes = 32, kProofBytes = 32;
const std::string kRefusal(kProofBytes, '\0');

}  // namespace

Handshake::Handshake(const Secret& secret, Side side, std::string_view purpose)
    : secret_(secret),
      side_(side),
      purpose_(purpose),
      state_(side == Side::Client ? State::Greeting : State::ClientProof) {
  (side == Side::Client ? client_nonce_ : server_nonce_) = Secret::random().key();
}

std::string Handshake::opening() const {
  return side_ == Side::Server ? std::string(kMagic) + server_nonce_ : std::string();
}

size_t Handshake::num_wanted() const {
  switch (state_) {
    case State::Greeting: return kMagic.size() + kNonceBytes;
    case State::ClientProof: return kNonceBytes + kProofBytes;
    case State::ServerProof: return kProofBytes;
    default: return 0;
  }
}

// Every part but the last has a fixed length: no two sets of parts give the same text.
std::string Handshake::proof(Side side) const {
  const std::string text =
      (side == Side::Client ? "client" : "server") + server_nonce_ + client_nonce_ + purpose_;
  return std::string(as_text(hmac_sha256(secret_.key(), text)));
}

void Handshake::give_up(std::string problem) {
  state_ = State::Stranger;
  problem_ = std::move(problem);
}

std::string Handshake::take(std::string_view bytes) {
  TANDEM_CHECK(bytes.size() == num_wanted() && !over());
  switch (state_) {
    case State::Greeting:
      if (!bytes.starts_with(kMagic)) {
        give_up("it does not speak tandem's language; is it another program that listens there?");
        return {};
      }
      server_nonce_ = bytes.substr(kMagic.size());
      state_ = State::ServerProof;
      return client_nonce_ + proof(Side::Client);
    case State::ClientProof:
      client_nonce_ = bytes.substr(0, kNonceBytes);
      if (!equal_secretly(bytes.substr(kNonceBytes), proof(Side::Client))) {
        give_up("it does not know the secret of this launch");
        return kRefusal;
      }
      state_ = State::Known;
      return proof(Side::Server);
    default:
      if (equal_secretly(bytes, proof(Side::Server))) {
        state_ = State::Known;
      } else {
        give_up(fmt::format("it has another secret; give all of a launch the same {}, or none",
                            kSecretFileVariable));
      }
      return {};
  }
}

Proof prove(const Socket& socket, const Secret& secret, Side side, std::string_view purpose,
            Deadline deadline, std::string* problem) {
  Handshake handshake(secret, side, purpose);
  std::string answer = handshake.opening();
  for (;;) {
    const bool sent = send_all(socket, answer, deadline);
    if (handshake.over()) break;
    std::string bytes;
    while (sent && bytes.size() < handshake.num_wanted()) {
      if (!receive_some(socket, bytes, deadline, handshake.num_wanted() - bytes.size())) break;
    }
    if (bytes.size() < handshake.num_wanted()) {
      *problem = errno == 0 ? "it closed the connection" : std::strerror(errno);
      return Proof::NoAnswer;
    }
    answer = handshake.take(bytes);
  }
  *problem = handshake.problem();
  return handshake.known() ? Proof::Known : Proof::Stranger;
}

}  // namespace tandem
