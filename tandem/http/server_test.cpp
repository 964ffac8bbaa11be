#include "tandem/http/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"

namespace tandem::http {
namespace {

Response serve(const Request& request) {
  Response response;
  response.body = request.path;
  if (request.path == "/large") response.body.assign(20 << 20, 'x');
  if (request.path == "/throws") throw std::runtime_error("went wrong");
  if (request.path == "/events") {
    response.events = [n = 0]() mutable { return "data: " + std::to_string(n++) + "\n\n"; };
  }
  return response;
}

class Client {
 public:
  explicit Client(const Server& server) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(server.address().port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval patience{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }
  void say(std::string_view text) const { ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL); }
  // Up to `end`, or the connection's.
  std::string hear(std::string_view end) {
    while (heard_.find(end) == std::string::npos) {
      char buffer[65536];
      const ssize_t n = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
      if (n <= 0) return std::exchange(heard_, "");
      heard_.append(buffer, static_cast<size_t>(n));
    }
    const size_t size = heard_.find(end) + end.size();
    std::string result = heard_.substr(0, size);
    heard_.erase(0, size);
    return result;
  }
  std::string get(const std::string& path) {
    say("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    return hear("no such end");
  }

 private:
  Descriptor fd_;
  std::string heard_;
};

Server start(ServerLimits limits = {}) { return Server({.host = "127.0.0.1", .port = 0}, serve, limits); }

TEST(Server, AnswersOneRequestAfterTheOtherOnOneConnection) {
  const Server server = start();
  Client client(server);
  client.say("GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHo");
  EXPECT_NE(client.hear("\r\n\r\n/a").find("HTTP/1.1 200 OK"), std::string::npos);
  client.say("st: x\r\n\r\n");
  EXPECT_NE(client.hear("\r\n\r\n/b").find("Content-Length: 2"), std::string::npos);
  client.say("HEAD /c HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.hear("\r\n\r\n").find("Content-Length: 2") != std::string::npos);
}

TEST(Server, SendsLargeAnswersWhole) {
  const Server server = start();
  EXPECT_GT(Client(server).get("/large").size(), size_t{20} << 20);
}

TEST(Server, TellsAndOutlivesWhatAHandlerThrows) {
  const Server server = start();
  EXPECT_NE(Client(server).get("/throws").find("500"), std::string::npos);
  EXPECT_NE(Client(server).get("/a").find("200 OK"), std::string::npos);
}

TEST(Server, RefusesAHeadThatDoesNotEnd) {
  const Server server = start();
  Client client(server);
  client.say("GET / HTTP/1.1\r\nX: " + std::string(kMostHead - 19, 'a'));
  EXPECT_NE(client.hear("\r\n").find("431"), std::string::npos);
}

TEST(Server, StreamsEvents) {
  const Server server = start({.tick = std::chrono::milliseconds(5)});
  Client client(server);
  client.say("GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.hear("data: 0\n\n").find("200 OK"), std::string::npos);
  EXPECT_EQ(client.hear("data: 1\n\n"), "data: 1\n\n");
}

TEST(Server, ServesOthersWhileHundredsAreSlow) {
  const Server server = start();
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 500; ++i) {
    slow.push_back(std::make_unique<Client>(server));
    slow.back()->say(i % 2 == 0 ? "GET / HT" : "GET /large HTTP/1.1\r\nHost: x\r\n");
  }
  EXPECT_NE(Client(server).get("/a").find("200 OK"), std::string::npos);
}

TEST(Server, EndsWithWhoSaysNothing) {
  const Server server = start({.head = std::chrono::milliseconds(20), .tick = std::chrono::milliseconds(5)});
  Client silent(server), half(server);
  half.say("GET / HT");
  EXPECT_EQ(silent.hear("x"), "");
  EXPECT_EQ(half.hear("x"), "");
}

TEST(Server, SaysThatAPortIsTaken) {
  const Server server = start();
  const std::string message = message_of<ListenError>([&] { Server(server.address(), serve); });
  EXPECT_EQ(
      message,
      server.address().text() +
          ": cannot be listened on: Address already in use; name another port, or 0 for any that is free");
}

}  // namespace
}  // namespace tandem::http
