// The tcp store's server: a thread that holds the dictionary, and the lifelines of its clients.
//
// A lifeline is a connection that a rank keeps open for as long as it lives, and writes to now and then. One
// that closes without a farewell sets the key that its owner named: so a killed rank is known to all who wait
// for that key at once. One that is open but silent shows a rank that is stopped or cut off.
//
// Whoever connects must show first that it knows the launch's secret (handshake.h). Until then it is a
// stranger: of those there are few at a time, each for a few seconds, and nothing is kept of what they send;
// the oldest goes first when more come, and a client of ours that was taken for one of them tries again.
//
// Requests are frames whose first field is the name; replies are frames whose first field is "ok" (then
// results), "late" (a get whose time is over), "refused" (then why) or "end" (the server stops, in good
// order).
//   set k v | get k ms | try_get k | add k n | set_if_missing k v | remove k
//   lifeline name key last_words | alive (no reply) | farewell (no reply) | silent ms
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tandem/comm/secret.h"
#include "tandem/comm/tcp/tcp_socket.h"

namespace tandem {

inline constexpr std::string_view kKeyStorePurpose = "store 1";  // of the handshake

class TcpKeyStoreServer {
 public:
  // Port 0: any free one. `from_elsewhere`: whether clients come from other hosts, too (listen_by_name).
  TcpKeyStoreServer(const std::string& host, int port, const Secret& secret, bool from_elsewhere);
  ~TcpKeyStoreServer();  // tells its clients that it stops in good order
  int port() const { return port_; }
  std::string address() const { return local_address(listeners_.front()); }  // for this process's own client

 private:
  struct Client;
  void serve();
  void accept_strangers(const Socket& listener);
  void read_from(Client& client);
  void read_proof(Client& client);
  void answer(Client& client, const std::vector<std::string>& request);
  void reply(Client& client, const std::vector<std::string_view>& fields);
  void send_rest(Client& client);
  bool set(const std::string& key, const std::string& value);  // false where the store is full
  void lose(Client& client);
  int attend();  // to what is late; returns milliseconds until something is, or -1
  bool may_accept(Deadline now) const;
  size_t num_strangers() const;
  Client* oldest_stranger() const;

  const Secret secret_;
  const size_t most_strangers_;
  std::vector<Socket> listeners_;
  Socket stop_reader_, stop_writer_;
  int port_ = 0;
  std::map<std::string, std::string> values_;
  size_t num_bytes_ = 0;                          // of keys and values
  std::vector<std::unique_ptr<Client>> clients_;  // in the order in which they came
  Deadline accept_again_;                         // after the process had no descriptor left
  std::jthread thread_;                           // last: it uses the others
};

}  // namespace tandem
