// Who does not know the secret gets nothing from a tcp store and keeps nobody else from it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <chrono>
#include <ctime>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/handshake.h"
#include "tandem/comm/key_store/tcp_key_store.h"
#include "tandem/comm/ranks_test.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Deadline in(seconds limit) { return std::chrono::steady_clock::now() + limit; }

Socket stranger_at(int port) {
  std::string problem;
  Socket socket = connect_once("127.0.0.1", port, in(seconds(10)), &problem);
  EXPECT_TRUE(socket.open()) << problem;
  return socket;
}

// All that it says until it hangs up.
std::string rest_of(const Socket& socket) {
  std::string bytes;
  while (receive_some(socket, bytes, in(seconds(20)))) {
  }
  EXPECT_NE(errno, ETIMEDOUT);
  return bytes;
}

class KeyStoreStrangers : public testing::Test {
 protected:
  TcpKeyStore store_{"127.0.0.1", 0, kTestSecret, Serve::OneHost, seconds(10)};
  TcpKeyStore client() {
    return TcpKeyStore("127.0.0.1", store_.port(), kTestSecret, Serve::No, seconds(30));
  }
};

TEST_F(KeyStoreStrangers, AreTurnedAwayWithoutTheSecret) {
  for (const Secret& other : {Secret(), Secret::random()}) {
    try {
      TcpKeyStore("127.0.0.1", store_.port(), other, Serve::No, seconds(30));
      FAIL() << "let in";
    } catch (const StrangerError& error) {
      EXPECT_EQ(error.what(),
                fmt::format("store tcp 127.0.0.1:{}: it has another secret; give all of a launch "
                            "the same TANDEM_SECRET_FILE, or none",
                            store_.port()));
    }
  }
}

TEST_F(KeyStoreStrangers, FindAnImposterOut) {
  TcpKeyStore imposter("127.0.0.1", 0, Secret::random(), Serve::OneHost, seconds(10));
  EXPECT_THROW(TcpKeyStore("127.0.0.1", imposter.port(), kTestSecret, Serve::No, seconds(30)), StrangerError);
}

TEST_F(KeyStoreStrangers, AreNotUnderstood) {
  const std::string request = encode_frame({"set", "none/0/ended", "rank 1 is gone"});
  const std::string greeting = encode_frame({"hello", "tandem store 1"});
  for (std::string words : {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), request, greeting + request}) {
    words.resize(std::max<size_t>(words.size(), 64), 'x');
    const Socket stranger = stranger_at(store_.port());
    send_all(stranger, words, in(seconds(10)));
    const std::string answer = rest_of(stranger);
    EXPECT_TRUE(answer.starts_with("tandem 1")) << answer.size();
    EXPECT_LE(answer.size(), 40u + 32u);  // its greeting and a refusal
  }
  EXPECT_EQ(store_.try_get("none/0/ended"), std::nullopt);
}

TEST_F(KeyStoreStrangers, CannotSayAgainWhatAClientSaid) {
  const Socket first = stranger_at(store_.port());
  std::string greeting;
  while (greeting.size() < 40 && receive_some(first, greeting, in(seconds(10)))) {
  }
  Handshake client(kTestSecret, Side::Client, kKeyStorePurpose);
  const std::string recorded = client.take(greeting);
  for (int i = 0; i < 3; ++i) {
    const Socket replay = stranger_at(store_.port());
    send_all(replay, recorded + encode_frame({"set", "key", "value"}), in(seconds(10)));
    rest_of(replay);
  }
  EXPECT_EQ(store_.try_get("key"), std::nullopt);
  ASSERT_TRUE(send_all(first, recorded, in(seconds(10))));  // it was good for that one connection
  std::string answer;
  while (answer.size() < 32 && receive_some(first, answer, in(seconds(10)))) {
  }
  client.take(answer);
  EXPECT_TRUE(client.known());
}

TEST_F(KeyStoreStrangers, AreFewAtATimeHoweverManyCome) {
  constexpr int kMany = 600;  // more than the most that any limit of descriptors leaves to them, 256
  std::vector<Socket> strangers;
  for (int i = 0; i < kMany; ++i) strangers.push_back(stranger_at(store_.port()));
  TcpKeyStore late = client();
  late.set("key", "value");
  EXPECT_EQ(store_.try_get("key"), "value");
  for (size_t i = 0; i + 256 < kMany; ++i) rest_of(strangers[i]);  // because others came
  EXPECT_EQ(late.try_get("key"), "value");
}

// A process that has all its descriptors in use waits until one is free, and does nothing meanwhile.
TEST(KeyStoreWithoutDescriptors, ServesAgainWhenOneIsFree) {
  int ports[2], go[2];
  ASSERT_EQ(pipe(ports), 0);
  ASSERT_EQ(pipe(go), 0);
  RankProcess process([&] {
    TcpKeyStore store("127.0.0.1", 0, kTestSecret, Serve::OneHost, seconds(10));
    const int port = store.port();
    const rlimit few{64, 64};
    setrlimit(RLIMIT_NOFILE, &few);
    std::vector<Socket> taken;
    do taken.emplace_back(::open("/dev/null", O_RDONLY));
    while (taken.back().open());
    if (write(ports[1], &port, sizeof(port)) < 0) return std::string("no pipe");
    char byte;
    if (read(go[0], &byte, 1) != 1) return std::string("no pipe");  // somebody waits to be let in
    const auto processor_time = [] {
      timespec time{};
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
      return seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
    };
    const auto before = processor_time();
    const auto until = std::chrono::steady_clock::now() + milliseconds(500);
    std::this_thread::sleep_until(until);
    const auto used = processor_time() - before;
    taken.clear();
    store.get("key", seconds(20));
    return std::string(used < milliseconds(250) ? "served" : "kept busy");
  });
  int port = 0;
  ASSERT_EQ(read(ports[0], &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
  const Socket waiting = stranger_at(port);
  ASSERT_EQ(write(go[1], "x", 1), 1);
  TcpKeyStore("127.0.0.1", port, kTestSecret, Serve::No, seconds(30)).set("key", "value");
  EXPECT_EQ(process.outcome(), "served");
}

TEST(KeyStoreLimits, AFullKeyStoreRefusesMore) {
  TcpKeyStore store("127.0.0.1", 0, kTestSecret, Serve::OneHost, seconds(10));
  const std::string big(15 << 20, 'x');
  std::string message;
  for (int i = 0; i < 18 && message.empty(); ++i) {
    try {
      store.set(fmt::format("key {}", i), big);
    } catch (const CommError& error) {
      message = error.what();
    }
  }
  EXPECT_NE(message.find("set 'key 17': the store is full"), std::string::npos) << message;
  store.remove("key 0");
  store.set("key 17", big);
}

}  // namespace
}  // namespace tandem
