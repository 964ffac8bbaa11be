// A small HTTP server that only gives things away: GET and HEAD, no bodies come in. One thread serves all
// connections and never waits for one of them: a slow client costs a buffer and a descriptor, not a thread,
// and what a client can make it keep is bounded. It is our own because what a training rank serves metrics
// with must not be a library that a bare GPU machine lacks, and because it bounds the size of heads.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tandem/http/address.h"
#include "tandem/http/request.h"

namespace tandem::http {

struct Response {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  // Server-sent events instead of a body: asked about four times a second for what is new, as long as the
  // client listens and takes what it was sent.
  std::function<std::string()> events;
};

using Handler = std::function<Response(const Request& request)>;

struct ServerLimits {
  size_t connections = 1000;  // more wait in the system's queue, or are refused by it
  std::chrono::milliseconds head{
      10000};  // for a whole head to come, from the first byte or the answer before
  std::chrono::milliseconds stalled{30000};  // for a client to take some of what it is sent
  std::chrono::milliseconds tick{250};       // between two looks for new events
};

class Server {
 public:
  // Listens when it returns; `handler` runs on the server's thread. What it throws is answered with 500.
  // Throws as listen_on.
  Server(Address address, Handler handler, ServerLimits limits);
  Server(Address address, Handler handler) : Server(std::move(address), std::move(handler), ServerLimits{}) {}
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const Address& address() const { return address_; }  // with the port that was taken

 private:
  class Loop;

  Address address_;
  int wake_ = -1;
  std::unique_ptr<Loop> loop_;
  std::jthread thread_;
};

}  // namespace tandem::http
