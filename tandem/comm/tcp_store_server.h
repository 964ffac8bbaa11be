// The tcp store's server: a thread that holds the dictionary, and the lifelines of its clients.
//
// A lifeline is a connection that a rank keeps open for as long as it lives, and writes to now and then. One
// that closes without a farewell sets the key that its owner named: so a killed rank is known to all who wait
// for that key at once. One that is open but silent shows a rank that is stopped or cut off.
//
// Requests are frames whose first field is the name; replies are frames whose first field is "ok" (then
// results), "late" (a get whose time is over), "refused" (then why) or "end" (the server stops, in good
// order).
//   hello magic | set k v | get k ms | try_get k | add k n | set_if_missing k v | remove k
//   lifeline name key last_words | alive (no reply) | farewell (no reply) | silent ms
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tandem/comm/tcp_socket.h"

namespace tandem {

inline constexpr std::string_view kStoreMagic = "tandem store 1";

class TcpStoreServer {
 public:
  TcpStoreServer(const std::string& host, int port);  // port 0: any free one
  ~TcpStoreServer();                                  // tells its clients that it stops in good order
  int port() const { return port_; }

 private:
  struct Client;
  void serve();
  void accept_clients();
  void read_from(Client& client);
  void answer(Client& client, const std::vector<std::string>& request);
  void reply(Client& client, const std::vector<std::string_view>& fields);
  void set(const std::string& key, const std::string& value);
  void lose(Client& client);
  int answer_late_gets();  // returns milliseconds until the next one is late, or -1

  Socket listener_, stop_reader_, stop_writer_;
  int port_ = 0;
  std::map<std::string, std::string> values_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace tandem
