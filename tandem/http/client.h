// Sends JSON to somebody's server, over http or https (libcurl), and gives what it answers. The connection is
// kept for the next call. Whatever goes wrong is a sentence in the answer: whoever asks decides what to do.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace tandem::http {

struct Answer {
  int status = 0;       // 0: there is none, and `trouble` says why
  std::string trouble;  // empty where the status is 2xx
  std::string body;     // its first bytes, kMostAnswer of them
};

inline constexpr size_t kMostAnswer = size_t{4} << 20;

struct ClientOptions {
  std::string user_password = {};  // "user:password" of HTTP's basic authentication; empty for none
  std::function<bool()> given_up =
      {};  // asked about once a second while a call is under way: it ends if true
};

class Client {
 public:
  explicit Client(ClientOptions options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Returns within `limit`. Redirections are not followed: what is sent, and who sends it, goes to the
  // address that was given, and nowhere else. One call at a time.
  Answer post_json(const std::string& url, const std::string& body, std::chrono::milliseconds limit);

 private:
  ClientOptions options_;
  void* handle_;  // libcurl's
};

}  // namespace tandem::http
