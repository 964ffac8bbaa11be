#include "tandem/metrics/webhook.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "tandem/http/post_taker_test.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// Answers each request with the next status; then with 200.
class Taker {
 public:
  explicit Taker(std::vector<int> statuses)
      : server_([this, statuses = std::move(statuses)](const http::Posted& posted) {
          bodies.push_back(posted.body);
          return http::PostAnswer{bodies.size() <= statuses.size() ? statuses[bodies.size() - 1] : 200};
        }) {}
  std::string url() const { return server_.url() + "/hook/secret"; }
  std::vector<std::string> bodies;  // to be read when whoever sends is gone

 private:
  http::PostTaker server_;
};

TEST(Webhook, TellsEachEventOnceInOrder) {
  Taker taker({});
  {
    Webhook hook(taker.url(), "runs/quick");
    hook.tell("start", "it begins", {{"step", 0}});
    hook.tell("end", "it ends", {{"step", 7}});
  }
  ASSERT_EQ(taker.bodies.size(), 2u);
  const auto start = nlohmann::json::parse(taker.bodies[0]), end = nlohmann::json::parse(taker.bodies[1]);
  EXPECT_EQ(start["type"], "start");
  EXPECT_EQ(start["run"], "quick");
  EXPECT_EQ(end["step"], 7);
  EXPECT_NE(end["text"].get<std::string>().find("it ends"), std::string::npos);
}

TEST(Webhook, TriesAgainWhereTheServerFailsAndThenIsSilent) {
  Taker taker({500, 503});
  {
    Webhook hook(taker.url(), "run", {.between = milliseconds(1)});
    hook.tell("failure", "what went wrong", {});
  }
  EXPECT_EQ(taker.bodies.size(), 3u);
}

TEST(Webhook, AServerThatIsNotThereIsToldOnceAndWithoutTheSecretInTheUrl) {
  Webhook hook("http://user:password@127.0.0.1:1/secret", "run", {.tries = 2, .between = milliseconds(1)});
  hook.tell("start", "a", {});
  hook.tell("end", "b", {});
  std::vector<std::string> troubles;
  for (int i = 0; i < 1000 && troubles.empty(); ++i, std::this_thread::sleep_for(milliseconds(10)))
    troubles = hook.take_troubles();
  ASSERT_EQ(troubles.size(), 1u);
  EXPECT_TRUE(troubles[0].starts_with("log.webhook: http://127.0.0.1:1 is not told: ")) << troubles[0];
  EXPECT_EQ(troubles[0].find("secret"), std::string::npos);
  EXPECT_EQ(troubles[0].find("password"), std::string::npos);
}

// A server that takes a call and never answers keeps the run's end for a bounded time only.
TEST(Webhook, ASilentServerDoesNotKeepTheRunFromEnding) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(fd, 4), 0);
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  {
    Webhook hook("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)), "run",
                 {.call = milliseconds(200), .between = milliseconds(1), .at_end = milliseconds(300)});
    for (int i = 0; i < 50; ++i) hook.tell("start", "a", {});
  }
  ::close(fd);
}

}  // namespace
}  // namespace tandem
