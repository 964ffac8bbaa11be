// A server for tests, which takes what is sent to it by POST on a port of its own.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace tandem::http {

struct Posted {
  std::string head, body;
};
struct PostAnswer {
  int status = 200;  // 0: none, the connection is closed
  std::string body = {};
};

class PostTaker {
 public:
  using Take = std::function<PostAnswer(const Posted& posted)>;  // on the server's thread
  explicit PostTaker(Take take) : take_(std::move(take)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd_, 16), 0);
    socklen_t size = sizeof address;
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::jthread([this] { work(); });
  }
  ~PostTaker() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);  // no earlier: its number may be given to another file at once
  }
  const std::string& url() const { return url_; }  // without a path

 private:
  void work() {
    for (int client; (client = ::accept(fd_, nullptr, nullptr)) >= 0; ::close(client)) {
      std::string text;
      char buffer[65536];
      size_t head = std::string::npos, length = 0;
      while (head == std::string::npos || text.size() < head + 4 + length) {
        const ssize_t n = ::recv(client, buffer, sizeof buffer, 0);
        if (n <= 0) break;
        text.append(buffer, static_cast<size_t>(n));
        if (head == std::string::npos) head = text.find("\r\n\r\n");
        if (const size_t at = text.find("Content-Length: "); at != std::string::npos)
          length = static_cast<size_t>(std::atol(text.c_str() + at + 16));
      }
      if (head == std::string::npos || text.size() < head + 4 + length) continue;
      const PostAnswer answer = take_({text.substr(0, head), text.substr(head + 4)});
      if (answer.status == 0) continue;
      const std::string bytes =
          "HTTP/1.1 " + std::to_string(answer.status) +
          " x\r\nConnection: close\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\n\r\n" +
          answer.body;
      // A client may have given up meanwhile.
      [[maybe_unused]] const ssize_t sent = ::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
  }

  Take take_;
  int fd_ = -1;
  std::string url_;
  std::jthread thread_;
};

}  // namespace tandem::http
