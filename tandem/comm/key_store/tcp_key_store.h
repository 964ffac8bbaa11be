// A store that one process serves in a thread and all reach by tcp. Threads that use one take turns: a get
// that waits holds up the others, so a thread that waits long has a store of its own.
#pragma once

#include <functional>
#include <mutex>

#include "tandem/comm/key_store/key_store.h"
#include "tandem/comm/key_store/tcp_key_store_server.h"

namespace tandem {

// Who answers at a tcp store's address.
enum class Serve {
  No,         // another process
  OneHost,    // this one, for clients on its host
  ManyHosts,  // this one, for clients elsewhere too
};

class TcpKeyStore final : public KeyStore {
 public:
  static constexpr std::chrono::milliseconds kPatience{20000};

  // Where this process serves, port 0 is any free one. Waits for the server to appear, and calls
  // while_waiting, which may throw, every now and then. Throws StrangerError at once where whoever answers
  // does not know the secret, CommError where nobody does in time. Every request but get is answered within
  // `patience`, or the store counts as down. `owner` is whom to look at then, for the description.
  TcpKeyStore(std::string host, int port, const Secret& secret, Serve serve,
              std::chrono::milliseconds connect_timeout, std::chrono::milliseconds patience = kPatience,
              const std::string& owner = {}, const std::function<void()>& while_waiting = {});
  ~TcpKeyStore() override;

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> try_get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string set_if_missing(const std::string& key, const std::string& value) override;
  void remove(const std::string& key) override;
  std::string description() const override;

  std::optional<std::string> wait_for(const std::string& key,
                                      std::chrono::milliseconds timeout);  // null: late

  int port() const { return port_; }
  std::string local_address() const { return local_address_; }    // by which this process reaches the server
  std::string server_address() const { return server_address_; }  // by which it is reached

  // Lifelines: see tcp_store_server.h. A store that has opened one is good for nothing else: one thread
  // calls listen, which waits for the key; it is woken by hang_up from another.
  enum class News { None, Value, ServerEnded, ServerLost };
  void open_lifeline(const std::string& name, const std::string& last_key, const std::string& last_words);
  News listen(std::chrono::milliseconds limit, std::string* value);
  void say_alive();
  void say_farewell();
  void hang_up() { socket_.shut_down(); }

  std::vector<std::string> silent(
      std::chrono::milliseconds limit);  // names of lifelines not heard for so long

 private:
  bool reach(const Secret& secret, Deadline deadline, std::string* problem);  // one attempt
  std::vector<std::string> ask(const std::vector<std::string_view>& request, std::chrono::milliseconds limit);
  std::optional<std::vector<std::string>> exchange(const std::vector<std::string_view>& request,
                                                   Deadline deadline);
  [[noreturn]] void fail(const std::string& problem) const;

  const std::string host_, owner_;
  std::unique_ptr<TcpKeyStoreServer> server_;
  int port_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  Socket socket_;
  std::string unread_;
  std::string local_address_, server_address_;
};

}  // namespace tandem
