#include "tandem/comm/handshake.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

namespace tandem {
namespace {

using std::chrono::milliseconds;

struct Outcome {
  bool server = false, client = false;
  std::string to_client, to_server;  // all that was said
};

// Hands each side what the other says, until neither has more to say.
Outcome talk(Handshake& server, Handshake& client) {
  Outcome outcome;
  std::string to_client = server.opening(), to_server = client.opening();
  while (!client.over() && to_client.size() >= client.num_wanted()) {
    outcome.to_client += to_client;
    to_server = client.take(to_client.substr(0, client.num_wanted()));
    to_client.clear();
    outcome.to_server += to_server;
    if (!server.over() && to_server.size() >= server.num_wanted()) to_client = server.take(to_server);
  }
  outcome.server = server.known();
  outcome.client = client.known();
  return outcome;
}

TEST(Handshake, IsPassedByBothSidesThatKnowTheSecret) {
  const Secret secret = Secret::random();
  Handshake server(secret, Side::Server, "store"), client(secret, Side::Client, "store");
  const Outcome outcome = talk(server, client);
  EXPECT_TRUE(outcome.server && outcome.client);
  EXPECT_EQ(outcome.to_client.find(secret.key()), std::string::npos);
  EXPECT_EQ(outcome.to_server.find(secret.key()), std::string::npos);
}

TEST(Handshake, IsPassedByAllWhereThereIsNoSecret) {
  const Secret none;
  Handshake server(none, Side::Server, "store"), client(none, Side::Client, "store");
  const Outcome outcome = talk(server, client);
  EXPECT_TRUE(outcome.server && outcome.client);
}

TEST(Handshake, FindsAClientWithAnotherSecret) {
  const Secret secret = Secret::random(), none;
  for (const Secret& other : {Secret::random(), none}) {
    Handshake server(secret, Side::Server, "store"), client(other, Side::Client, "store");
    const Outcome outcome = talk(server, client);
    EXPECT_FALSE(outcome.server);
    EXPECT_FALSE(outcome.client);
    EXPECT_EQ(client.problem(),
              "it has another secret; give all of a launch the same TANDEM_SECRET_FILE, or none");
  }
}

TEST(Handshake, FindsAnotherPurpose) {
  const Secret secret = Secret::random();
  Handshake server(secret, Side::Server, "store"), client(secret, Side::Client, "data");
  const Outcome outcome = talk(server, client);
  EXPECT_FALSE(outcome.server || outcome.client);
}

// An imposter may say yes to whatever the client proves; it cannot prove itself.
TEST(Handshake, FindsAServerThatDoesNotKnowTheSecret) {
  const Secret secret = Secret::random(), other = Secret::random();
  Handshake server(other, Side::Server, "store"), client(secret, Side::Client, "store");
  const std::string reply = client.take(server.opening());
  client.take(reply.substr(32));  // the client's own proof, given back to it
  EXPECT_TRUE(client.over());
  EXPECT_FALSE(client.known());
}

TEST(Handshake, IsNotPassedByWhatWasSaidBefore) {
  const Secret secret = Secret::random();
  Handshake first_server(secret, Side::Server, "store"), first_client(secret, Side::Client, "store");
  const Outcome recorded = talk(first_server, first_client);
  ASSERT_TRUE(recorded.server);

  Handshake server(secret, Side::Server, "store");
  server.take(recorded.to_server);
  EXPECT_TRUE(server.over());
  EXPECT_FALSE(server.known());

  Handshake client(secret, Side::Client, "store");
  client.take(recorded.to_client.substr(0, client.num_wanted()));
  client.take(recorded.to_client.substr(recorded.to_client.size() - client.num_wanted()));
  EXPECT_TRUE(client.over());
  EXPECT_FALSE(client.known());
}

TEST(Handshake, TellsAnotherProgramFromATandem) {
  const Secret secret = Secret::random();
  Handshake client(secret, Side::Client, "store");
  client.take(std::string("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"));
  EXPECT_TRUE(client.over());
  EXPECT_NE(client.problem().find("another program"), std::string::npos);
}

struct Ends {
  Socket server, client;
  Ends() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    server = Socket(fds[0]);
    client = Socket(fds[1]);
  }
};

Deadline soon(int ms = 30000) { return std::chrono::steady_clock::now() + milliseconds(ms); }

TEST(Prove, ReadsNothingOfWhatFollows) {
  const Secret secret = Secret::random();
  Ends ends;
  std::jthread server([&] {
    std::string problem;
    EXPECT_EQ(prove(ends.server, secret, Side::Server, "data", soon(), &problem), Proof::Known) << problem;
    EXPECT_TRUE(send_all(ends.server, "and then data", soon()));
  });
  std::string problem, bytes;
  EXPECT_EQ(prove(ends.client, secret, Side::Client, "data", soon(), &problem), Proof::Known) << problem;
  while (bytes.size() < 13 && receive_some(ends.client, bytes, soon())) {
  }
  EXPECT_EQ(bytes, "and then data");
}

TEST(Prove, TellsBothSidesOfAStranger) {
  const Secret secret = Secret::random(), other = Secret::random();
  Ends ends;
  std::jthread server([&] {
    std::string problem;
    EXPECT_EQ(prove(ends.server, secret, Side::Server, "data", soon(), &problem), Proof::Stranger);
    EXPECT_EQ(problem, "it does not know the secret of this launch");
  });
  std::string problem;
  EXPECT_EQ(prove(ends.client, other, Side::Client, "data", soon(), &problem), Proof::Stranger);
  EXPECT_NE(problem.find("another secret"), std::string::npos) << problem;
}

TEST(Prove, EndsAtItsDeadlineWithOneThatIsSilent) {
  Ends ends;
  std::string problem;
  EXPECT_EQ(prove(ends.server, Secret(), Side::Server, "data", soon(20), &problem), Proof::NoAnswer);
  EXPECT_EQ(problem, "Connection timed out");
}

TEST(Prove, EndsWithOneThatHangsUp) {
  Ends ends;
  std::string problem;
  EXPECT_TRUE(send_all(ends.server, "tandem 1 and hal", soon()));
  ends.server.close();
  EXPECT_EQ(prove(ends.client, Secret(), Side::Client, "data", soon(), &problem), Proof::NoAnswer);
  EXPECT_EQ(problem, "it closed the connection");
}

}  // namespace
}  // namespace tandem
