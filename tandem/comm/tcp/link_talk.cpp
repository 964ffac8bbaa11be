#include "tandem/comm/tcp/link_talk.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tandem {
namespace {

struct Knock {  // as it travels
  char magic[8] = {'t', 'a', 'n', 'd', 'e', 'm', ' ', 'l'};
  int32_t server = 0, client = 0;
  uint8_t axis = 0, use = 0, unused[2] = {};
};

std::string encode(const LinkName& name) {
  Knock knock;
  knock.server = name.server;
  knock.client = name.client;
  knock.axis = static_cast<uint8_t>(name.axis);
  knock.use = static_cast<uint8_t>(name.use);
  std::string bytes(sizeof(knock), '\0');
  std::memcpy(bytes.data(), &knock, sizeof(knock));
  return bytes;
}

std::optional<LinkName> decode(const std::string& bytes) {
  Knock knock;
  std::memcpy(&knock, bytes.data(), sizeof(knock));
  const LinkName name{knock.server, knock.client, static_cast<Axis>(knock.axis),
                      static_cast<LinkUse>(knock.use)};
  return encode(name) == bytes ? std::optional(name) : std::nullopt;
}

}  // namespace

LinkTalk LinkTalk::knock(Socket socket, const LinkName& name, const Secret& secret,
                         const std::string& purpose) {
  LinkTalk talk(std::move(socket));
  talk.name_ = name;
  talk.handshake_ = std::make_unique<Handshake>(secret, Side::Client, purpose);
  talk.state_ = State::Proving;
  talk.say(encode(name));
  return talk;
}

void LinkTalk::answer(const Secret& secret, const std::string& purpose) {
  handshake_ = std::make_unique<Handshake>(secret, Side::Server, purpose);
  state_ = State::Proving;
  say(handshake_->opening());
  hear();
}

void LinkTalk::hear() {
  if (state_ == State::Knocking && !name_ && fill(sizeof(Knock))) {
    name_ = decode(heard_);
    heard_.clear();
    if (!name_) end("it does not speak tandem's language");
  }
  while (state_ == State::Proving && fill(handshake_->num_wanted())) {
    const std::string heard = std::exchange(heard_, {});
    say(handshake_->take(heard));
    if (handshake_->over() && !handshake_->known()) end(handshake_->problem());
    if (handshake_->known() && state_ != State::Over) state_ = State::Known;
  }
}

// Not a byte more: what follows may be the first message.
bool LinkTalk::fill(size_t bytes) {
  while (heard_.size() < bytes) {
    char buffer[128];
    const ssize_t count =
        recv(socket_.fd(), buffer, std::min(sizeof(buffer), bytes - heard_.size()), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return false;
    if (count <= 0) {
      end(count == 0 ? "it closed the connection" : std::strerror(errno));
      return false;
    }
    heard_.append(buffer, static_cast<size_t>(count));
  }
  return true;
}

// So few bytes always fit into a new connection.
void LinkTalk::say(const std::string& bytes) {
  if (bytes.empty() || state_ == State::Over) return;
  const ssize_t sent = send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(bytes.size()))
    end(sent < 0 ? std::strerror(errno) : "it does not take what it is told");
}

void LinkTalk::end(std::string problem) {
  state_ = State::Over;
  problem_ = std::move(problem);
}

}  // namespace tandem
