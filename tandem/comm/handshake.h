// How two sides of a connection show each other that they know the launch's secret, without sending it:
//
//   server:  "tandem 1", nonce s
//   client:  nonce c, HMAC(secret, "client", s, c, purpose)
//   server:  HMAC(secret, "server", s, c, purpose), or zeros where the client's was wrong
//
// Both nonces are new each time, so a recording is of no use; the roles differ, so that neither side's words
// can be given back to it; and the purpose differs for each kind of connection. What follows is not
// encrypted.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tandem/base/error.h"
#include "tandem/comm/secret.h"
#include "tandem/comm/tcp/tcp_socket.h"

namespace tandem {

enum class Side { Server, Client };  // who accepted the connection, who made it

enum class Proof {
  Known,     // the other side knows the secret, and knows that this one does
  Stranger,  // it does not, or speaks another language: trying again is of no use
  NoAnswer   // it closed, or the time was over: one that has too much to do may answer the next time
};

using StrangerError = TypedError<ExitCode::Failed, 9>;  // who answers does not know the launch's secret

// One side's part, for whoever must not wait. The secret must outlive it.
class Handshake {
 public:
  Handshake(const Secret& secret, Side side, std::string_view purpose);

  // What to send at first; empty for a client.
  std::string opening() const;
  // How many bytes have to come before the next call of take: at most 64. 0 once it is over.
  size_t num_wanted() const;
  // Takes so many bytes; returns what to send then. It may be the last word to a stranger.
  std::string take(std::string_view bytes);

  bool over() const { return num_wanted() == 0; }
  bool known() const { return state_ == State::Known; }
  const std::string& problem() const { return problem_; }  // what is wrong with a stranger, for a user

 private:
  enum class State { Greeting, ClientProof, ServerProof, Known, Stranger };
  std::string proof(Side side) const;
  void give_up(std::string problem);

  const Secret& secret_;
  const Side side_;
  const std::string purpose_;
  State state_;
  std::string server_nonce_, client_nonce_;
  std::string problem_;
};

// The whole of it on a connection that is new. Reads not a byte more. `problem` says why not Known.
Proof prove(const Socket& socket, const Secret& secret, Side side, std::string_view purpose,
            Deadline deadline, std::string* problem);

}  // namespace tandem
