// The first words on a connection between two ranks, on a socket that does not block: who knocks says which
// link it is to be, then both show that they know the launch's secret.
#pragma once

#include <compare>
#include <memory>
#include <optional>

#include "tandem/base/mesh.h"
#include "tandem/comm/handshake.h"
#include "tandem/comm/tcp/tcp_socket.h"

namespace tandem {

enum class LinkUse : uint8_t { Collectives, Messages };

struct LinkName {
  int server = 0, client = 0;  // ranks in the world: whose port it is, and who connects
  Axis axis = Axis::World;
  LinkUse use = LinkUse::Collectives;
  auto operator<=>(const LinkName&) const = default;
};

class LinkTalk {
 public:
  enum class State { Knocking, Proving, Known, Over };

  // `purpose` is what the link is for, to be proved, in words that nobody else can know.
  static LinkTalk knock(Socket socket, const LinkName& name, const Secret& secret,
                        const std::string& purpose);
  static LinkTalk listen(Socket socket) { return LinkTalk(std::move(socket)); }
  void answer(const Secret& secret, const std::string& purpose);  // to the knock that was heard

  // Takes what has come.
  void hear();

  State state() const { return state_; }
  const std::optional<LinkName>& name() const { return name_; }  // once it has been said
  const std::string& problem() const { return problem_; }        // once it is over
  int fd() const { return socket_.fd(); }
  Socket take_socket() { return std::move(socket_); }  // once it is known: nothing else has been read from it

 private:
  explicit LinkTalk(Socket socket) : socket_(std::move(socket)) {}
  bool fill(size_t bytes);
  void say(const std::string& bytes);
  void end(std::string problem);

  Socket socket_;
  State state_ = State::Knocking;
  std::optional<LinkName> name_;
  std::unique_ptr<Handshake> handshake_;
  std::string heard_, problem_;
};

}  // namespace tandem
