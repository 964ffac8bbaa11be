#include "tandem/comm/tcp/link_talk.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tandem/comm/ranks_test.h"

namespace tandem {
namespace {

using State = LinkTalk::State;

const LinkName kName{0, 3, Axis::Tensor, LinkUse::Messages};

class Talk : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    near_ = Socket(ends[0]);
    far_ = Socket(ends[1]);
  }
  // Both sides in turns, until neither has more to say.
  static void talk(LinkTalk& client, LinkTalk& server, const Secret& servers, const std::string& purpose) {
    for (int turn = 0; turn < 4; ++turn) {
      server.hear();
      if (server.state() == State::Knocking && server.name()) server.answer(servers, purpose);
      client.hear();
    }
  }
  Socket near_, far_;
};

TEST_F(Talk, EndsWithBothSidesKnowing) {
  LinkTalk client = LinkTalk::knock(std::move(near_), kName, kTestSecret, "p");
  LinkTalk server = LinkTalk::listen(std::move(far_));
  talk(client, server, kTestSecret, "p");
  EXPECT_EQ(client.state(), State::Known);
  EXPECT_EQ(server.state(), State::Known);
  EXPECT_EQ(server.name(), kName);
}

TEST_F(Talk, TakesNoByteOfWhatFollows) {
  LinkTalk client = LinkTalk::knock(std::move(near_), kName, kTestSecret, "p");
  LinkTalk server = LinkTalk::listen(std::move(far_));
  server.hear();
  server.answer(kTestSecret, "p");
  client.hear();
  ASSERT_EQ(send(client.fd(), "first", 5, 0), 5);  // before it knows that it is believed
  server.hear();
  ASSERT_EQ(server.state(), State::Known);
  char buffer[16];
  const Socket socket = server.take_socket();
  EXPECT_EQ(std::string(buffer, static_cast<size_t>(recv(socket.fd(), buffer, sizeof(buffer), 0))), "first");
}

TEST_F(Talk, IsOverWithAnotherSecretOrPurpose) {
  const Secret other = Secret::random();
  for (const bool other_secret : {true, false}) {
    SetUp();
    LinkTalk client = LinkTalk::knock(std::move(near_), kName, kTestSecret, "p");
    LinkTalk server = LinkTalk::listen(std::move(far_));
    talk(client, server, other_secret ? other : kTestSecret, other_secret ? "p" : "q");
    EXPECT_EQ(client.state(), State::Over);
    EXPECT_EQ(server.state(), State::Over);
    EXPECT_NE(client.problem().find("another secret"), std::string::npos) << client.problem();
  }
}

TEST_F(Talk, IsOverWithAnotherLanguageOrAtTheEnd) {
  LinkTalk server = LinkTalk::listen(std::move(far_));
  ASSERT_EQ(send(near_.fd(), "GET / HTTP/1.1\r\nHost: example\r\n", 31, 0), 31);
  server.hear();
  EXPECT_EQ(server.state(), State::Over);
  EXPECT_FALSE(server.name());

  SetUp();
  LinkTalk left = LinkTalk::listen(std::move(far_));
  near_.close();
  left.hear();
  EXPECT_EQ(left.state(), State::Over);
}

TEST_F(Talk, WaitsForTheRest) {
  LinkTalk server = LinkTalk::listen(std::move(far_));
  ASSERT_EQ(send(near_.fd(), "tandem", 6, 0), 6);
  server.hear();
  EXPECT_EQ(server.state(), State::Knocking);
}

}  // namespace
}  // namespace tandem
