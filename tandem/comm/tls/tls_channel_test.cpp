#include "tandem/comm/tls/tls_channel.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <future>
#include <thread>
#include <vector>

#include "tandem/comm/ranks_test.h"

namespace tandem {
namespace {

const TlsContext kContext{TlsFiles{}};

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    server = Socket(ends[0]);
    client = Socket(ends[1]);
  }
  Socket server, client;
};

Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(60); }

std::unique_ptr<TlsChannel> channel(const Socket& socket, Side side, const Secret& secret = kTestSecret,
                                    const std::string& purpose = "p") {
  return std::make_unique<TlsChannel>(kContext, socket, side, secret, purpose, soon());
}

// What became of both: empty, or why not.
std::pair<std::string, std::string> meet(const Socket& server, const Socket& client, const Secret& clients,
                                         const std::string& clients_purpose) {
  const auto said = [](auto&& make) -> std::string {
    try {
      make();
      return {};
    } catch (const CommError& error) {
      return error.what();
    }
  };
  auto far = std::async(std::launch::async, [&] { return said([&] { channel(server, Side::Server); }); });
  std::string near = said([&] { channel(client, Side::Client, clients, clients_purpose); });
  return {far.get(), near};
}

void wait(const Socket& socket, short events) {
  pollfd entry{socket.fd(), events, 0};
  poll(&entry, 1, 1000);
}

TEST(TlsChannel, CarriesBytesBothWaysAtOnce) {
  const Pair pair;
  auto far = std::async(std::launch::async, [&] { return channel(pair.server, Side::Server); });
  const auto near = channel(pair.client, Side::Client);
  const auto other = far.get();
  std::vector<std::byte> sent(3'000'000);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  const auto send_all = [&](TlsChannel& to, const Socket& socket) {
    for (size_t at = 0; at < sent.size();) {
      const ssize_t moved = to.send(std::span(sent).subspan(at));
      if (moved > 0) at += static_cast<size_t>(moved);
      if (moved < 0) {
        ASSERT_EQ(errno, EAGAIN);
        wait(socket, POLLOUT);
      }
    }
  };
  const auto receive_all = [&](TlsChannel& from, const Socket& socket) {
    std::vector<std::byte> got(sent.size());
    for (size_t at = 0; at < got.size();) {
      const ssize_t moved =
          from.receive(std::span(got).subspan(at, std::min<size_t>(got.size() - at, 100'000)));
      if (moved > 0) at += static_cast<size_t>(moved);
      if (moved < 0) wait(socket, POLLIN);
    }
    EXPECT_EQ(got, sent);
  };
  {
    const std::jthread a([&] { send_all(*near, pair.client); }), b([&] { receive_all(*near, pair.client); });
    const std::jthread c([&] { send_all(*other, pair.server); }),
        d([&] { receive_all(*other, pair.server); });
  }
}

TEST(TlsChannel, TellsThatTheOtherIsGone) {
  Pair pair;
  auto far = std::async(std::launch::async, [&] { return channel(pair.server, Side::Server); });
  const auto near = channel(pair.client, Side::Client);
  far.get();
  std::byte byte{};
  EXPECT_EQ(near->receive({&byte, 1}), -1);
  EXPECT_EQ(errno, EAGAIN);
  pair.server.close();
  const ssize_t moved = near->receive({&byte, 1});
  EXPECT_TRUE(moved == 0 || (moved < 0 && errno != EAGAIN));
  near->send({&byte, 1});  // no SIGPIPE
}

TEST(TlsChannel, LeavesTheReasonToWhoBrokeOff) {
  Pair pair;
  auto far = std::async(std::launch::async, [&] {
    std::byte hello{};  // the first byte of what the client says; then the server goes
    wait(pair.server, POLLIN);
    EXPECT_EQ(recv(pair.server.fd(), &hello, 1, 0), 1);
    pair.server.close();
  });
  EXPECT_THROW(channel(pair.client, Side::Client), BrokenOff);
  far.get();
  const Pair other;
  auto refuses = std::async(std::launch::async, [&] {
    try {
      channel(other.server, Side::Server, Secret::random());
      return std::string("it did not refuse");
    } catch (const BrokenOff&) {
      return std::string("it says that the other should know");
    } catch (const CommError&) {
      return std::string();
    }
  });
  EXPECT_THROW(channel(other.client, Side::Client), CommError);
  EXPECT_EQ(refuses.get(), "");
}

TEST(TlsChannel, RefusesAnotherSecretAndAnotherPurpose) {
  const Pair one, two, three;
  EXPECT_EQ(meet(one.server, one.client, kTestSecret, "p"), std::pair(std::string(), std::string()));
  for (const auto& [far, near] : {meet(two.server, two.client, Secret::random(), "p"),
                                  meet(three.server, three.client, kTestSecret, "q")}) {
    EXPECT_NE(far, "");
    EXPECT_NE(near, "");
  }
}

// Talks TLS with both and gives each what the other says: all that it lacks is the secret.
void stand_between(const Socket& as_client, const Socket& as_server) {
  SSL* to_server = SSL_new(kContext.get());
  SSL* to_client = SSL_new(kContext.get());
  SSL_set_fd(to_server, as_client.fd());
  SSL_set_fd(to_client, as_server.fd());
  SSL_set_connect_state(to_server);
  SSL_set_accept_state(to_client);
  const Deadline end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::chrono::steady_clock::now() < end) {
    for (const auto& [from, to] : {std::pair(to_server, to_client), std::pair(to_client, to_server)}) {
      char buffer[256];
      const int count = SSL_read(from, buffer, sizeof buffer);
      if (count > 0) SSL_write(to, buffer, count);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  SSL_free(to_server);
  SSL_free(to_client);
}

TEST(TlsChannel, RefusesWhoStandsBetween) {
  const Pair left, right;  // the server's connection, and the client's
  std::jthread between([&] { stand_between(left.client, right.server); });
  const auto [far, near] = meet(left.server, right.client, kTestSecret, "p");
  EXPECT_NE(far, "");
  EXPECT_NE(near, "");
}

TEST(TlsFiles, AreAllThereOrNone) {
  for (const char* name : {kTlsCertVariable, kTlsKeyVariable, kTlsCaVariable}) unsetenv(name);
  EXPECT_EQ(tls_files_from_environment().certificate, "");
  setenv(kTlsKeyVariable, "key.pem", 1);
  EXPECT_THROW(tls_files_from_environment(), ConfigError);
  setenv(kTlsCertVariable, "cert.pem", 1);
  setenv(kTlsCaVariable, "ca.pem", 1);
  EXPECT_EQ(tls_files_from_environment().authority, "ca.pem");
  EXPECT_THROW(TlsContext{tls_files_from_environment()}, ConfigError);  // there is no such file
  for (const char* name : {kTlsCertVariable, kTlsKeyVariable, kTlsCaVariable}) unsetenv(name);
}

}  // namespace
}  // namespace tandem
