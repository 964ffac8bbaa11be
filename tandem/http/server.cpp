#include "tandem/http/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <list>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"

namespace tandem::http {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kEndOfHead = "\r\n\r\n";
constexpr size_t kMostUnsent = 4 << 20;  // of events; then a client has to catch up first
constexpr std::chrono::seconds kHeartbeat{10};

std::string_view reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 413: return "Content Too Large";
    case 421: return "Misdirected Request";
    case 431: return "Request Header Fields Too Large";
    case 505: return "HTTP Version Not Supported";
    default: return "Internal Server Error";
  }
}

struct Connection {
  explicit Connection(int socket) : fd(socket), since(Clock::now()) {}
  Descriptor fd;
  std::string in, out;
  size_t sent = 0;          // of out
  Clock::time_point since;  // the last progress: of the head, or of what is sent
  std::function<std::string()> events;
  Clock::time_point told;  // the last event or heartbeat
  bool closing = false;    // when out is sent
  bool gone = false;

  bool unsent() const { return sent < out.size(); }
};

}  // namespace

class Server::Loop {
 public:
  Loop(int listener, int wake, Handler handler, const ServerLimits& limits)
      : listener_(listener), wake_(wake), handler_(std::move(handler)), limits_(limits) {}

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      wait();
      if ((polled_[1].revents & POLLIN) != 0) accept_all();
      size_t i = 2;
      for (Connection& connection : connections_) {
        if (i >= polled_.size()) break;  // it has come just now
        const short seen = polled_[i++].revents;
        if ((seen & (POLLERR | POLLNVAL)) != 0) connection.gone = true;
        if ((seen & (POLLIN | POLLHUP)) != 0) receive(connection);
        if ((seen & POLLOUT) != 0) send(connection);
      }
      tick();
    }
  }

 private:
  void wait() {
    polled_.assign(
        {{wake_.get(), POLLIN, 0},
         {listener_.get(), static_cast<short>(connections_.size() < limits_.connections ? POLLIN : 0), 0}});
    bool streams = false;
    for (const Connection& connection : connections_) {
      short wanted = connection.unsent() ? POLLOUT : 0;
      if (connection.in.size() < kMostHead && !connection.closing) wanted |= POLLIN;
      polled_.push_back({connection.fd.get(), wanted, 0});
      streams = streams || connection.events;
    }
    const auto most = streams ? limits_.tick : std::chrono::milliseconds(1000);
    ::poll(polled_.data(), polled_.size(), static_cast<int>(connections_.empty() ? -1 : most.count()));
  }

  void accept_all() {
    while (connections_.size() < limits_.connections) {
      const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        // Out of descriptors: without a pause this would spin.
        if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return;
      }
      connections_.emplace_back(fd);
    }
  }

  void receive(Connection& connection) {
    char buffer[8192];
    const ssize_t n = ::recv(connection.fd.get(), buffer, sizeof(buffer), 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
      connection.gone = true;
      return;
    }
    if (n < 0 || connection.events) return;  // who listens to events has nothing more to say
    if (connection.in.empty()) connection.since = Clock::now();
    connection.in.append(buffer, static_cast<size_t>(n));
    answer_all(connection);
  }

  void answer_all(Connection& connection) {
    while (!connection.closing && !connection.events && !connection.unsent()) {
      const size_t end = connection.in.find(kEndOfHead);
      if (end == std::string::npos) {
        if (connection.in.size() >= kMostHead) refuse(connection, 431);
        return;
      }
      const auto parsed = parse_request(std::string_view(connection.in).substr(0, end));
      connection.in.erase(0, end + kEndOfHead.size());
      if (const auto* refusal = std::get_if<Refusal>(&parsed)) return refuse(connection, refusal->status);
      answer(connection, std::get<Request>(parsed));
      send(connection);
    }
  }

  void refuse(Connection& connection, int status) {
    put(connection,
        {.status = status, .body = fmt::format("{}\n", reason_of(status)), .headers = {}, .events = {}},
        /*with_body=*/true, /*keep_alive=*/false);
    send(connection);
  }

  void answer(Connection& connection, const Request& request) {
    Response response;
    try {
      response = handler_(request);
    } catch (const std::exception& error) {
      response = {.status = 500, .body = fmt::format("{}\n", error.what()), .headers = {}, .events = {}};
    }
    put(connection, response, request.method == "GET", request.keep_alive);
  }

  static void put(Connection& connection, const Response& response, bool with_body, bool keep_alive) {
    const bool streams = response.events && with_body;
    std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", response.status,
                                   reason_of(response.status), response.type);
    for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
    if (response.status == 405) head += "Allow: GET, HEAD\r\n";
    if (!response.events) head += fmt::format("Content-Length: {}\r\n", response.body.size());
    connection.closing = !streams && (!keep_alive || response.events);
    head += connection.closing || streams ? "Connection: close\r\n\r\n" : "\r\n";
    connection.out = std::move(head);
    connection.sent = 0;
    connection.since = Clock::now();
    if (streams) {
      connection.events = response.events;
      connection.told = Clock::now() - kHeartbeat;
    } else if (with_body) {
      connection.out += response.body;
    }
  }

  static void send(Connection& connection) {
    while (connection.unsent() && !connection.gone) {
      const ssize_t n = ::send(connection.fd.get(), connection.out.data() + connection.sent,
                               connection.out.size() - connection.sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) connection.gone = true;
      if (n > 0) {
        connection.sent += static_cast<size_t>(n);
        connection.since = Clock::now();
      }
    }
    if (connection.unsent()) return;
    connection.out.clear();
    connection.sent = 0;
    if (connection.closing) {
      // Else the client may lose what it has not read yet, for bytes of its own that nobody reads.
      ::shutdown(connection.fd.get(), SHUT_WR);
      connection.gone = true;
    }
  }

  // What is due with time: events, heartbeats, the end of who is too slow.
  void tick() {
    const auto now = Clock::now();
    for (Connection& connection : connections_) {
      if (connection.events && !connection.gone) tell(connection, now);
      if (!connection.unsent() && !connection.in.empty() && !connection.events) answer_all(connection);
      const auto most = connection.unsent() ? limits_.stalled : limits_.head;
      if ((connection.unsent() || !connection.events) && now - connection.since > most)
        connection.gone = true;
    }
    std::erase_if(connections_, [](const Connection& connection) { return connection.gone; });
  }

  void tell(Connection& connection, Clock::time_point now) {
    if (now - connection.told < limits_.tick || connection.out.size() - connection.sent > kMostUnsent) return;
    std::string news;
    try {
      news = connection.events();
    } catch (const std::exception&) {
      connection.gone = true;  // the client connects anew, and hears what is wrong
      return;
    }
    if (news.empty()) {
      if (now - connection.told < kHeartbeat) return;
      news = ": still here\n\n";
    }
    if (!connection.unsent()) connection.since = now;
    connection.told = now;
    connection.out += news;
    send(connection);
  }

  Descriptor listener_, wake_;
  Handler handler_;
  ServerLimits limits_;
  std::list<Connection> connections_;
  std::vector<pollfd> polled_;
};

Server::Server(Address address, Handler handler, ServerLimits limits) : address_(std::move(address)) {
  const int listener = listen_on(address_);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  loop_ = std::make_unique<Loop>(listener, wake_, std::move(handler), limits);
  if (wake_ < 0) throw ListenError("{}: out of file descriptors", address_.text());
  thread_ = std::jthread([this](const std::stop_token& stop) { loop_->run(stop); });
}

Server::~Server() {
  thread_.request_stop();
  const uint64_t one = 1;
  if (::write(wake_, &one, sizeof(one)) < 0) thread_.request_stop();  // cannot fail: the counter is at 0
  if (thread_.joinable()) thread_.join();
}

}  // namespace tandem::http
