#include "tandem/comm/tcp/tcp_message.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <numeric>
#include <vector>

#include "tandem/comm/tcp/tcp_socket.h"

namespace tandem {
namespace {

class Messages : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    near_ = Socket(ends[0]);
    far_ = Socket(ends[1]);
    data_.resize(1'000'003);
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<std::byte>(i * 7 + i / 256);
  }
  Outgoing outgoing() const { return Outgoing(header_, data_.data(), static_cast<int64_t>(data_.size())); }

  Socket near_, far_;
  std::vector<std::byte> data_;
  const MessageHeader header_{3, 17, 1'000'003, "blocks.3"};
};

TEST_F(Messages, ComeWholeWithTheirHeader) {
  Outgoing out = outgoing();
  std::vector<std::byte> received(data_.size());
  Incoming in(received.data(), static_cast<int64_t>(received.size()), static_cast<int64_t>(received.size()));
  while (!in.done()) {
    if (!out.done()) {
      ASSERT_NE(out.push(near_.fd()), Progress::Closed);
    }
    if (in.has_room()) {
      ASSERT_NE(in.pull(far_.fd()), Progress::Closed);
    }
  }
  EXPECT_TRUE(out.done());
  EXPECT_EQ(in.header(), header_);
  EXPECT_EQ(in.header().label_text(), "blocks.3");
  EXPECT_EQ(received, data_);
  EXPECT_EQ(in.pull(far_.fd()), Progress::Blocked);
}

TEST_F(Messages, WaitUntilTheirWindowHasRoom) {
  constexpr int64_t kWindow = 4096;
  Outgoing out = outgoing();
  std::vector<std::byte> window(kWindow), received;
  Incoming in(window.data(), static_cast<int64_t>(data_.size()), kWindow);
  while (!in.done()) {
    if (!out.done()) {
      ASSERT_NE(out.push(near_.fd()), Progress::Closed);
    }
    const int64_t before = in.bytes();
    while (in.has_room()) {
      if (in.pull(far_.fd()) != Progress::Moved) break;
    }
    ASSERT_LE(in.bytes() - before, kWindow);
    for (int64_t i = before; i < in.bytes(); ++i)
      received.push_back(window[static_cast<size_t>(i % kWindow)]);
    in.release(in.bytes());
  }
  EXPECT_EQ(received, data_);
}

TEST_F(Messages, EndWithTheConnection) {
  Outgoing out = outgoing();
  ASSERT_EQ(out.push(near_.fd()), Progress::Moved);
  far_.close();
  Progress progress = Progress::Moved;
  while (progress == Progress::Moved) progress = out.push(near_.fd());  // no signal either
  EXPECT_EQ(progress, Progress::Closed);
  Incoming in(data_.data(), 8, 8);
  EXPECT_EQ(in.pull(near_.fd()), Progress::Closed);
}

TEST(MessageHeader, KeepsTheBeginningOfALongLabel) {
  const std::string label(100, 'x');
  EXPECT_EQ(MessageHeader(0, 0, 0, label).label_text(), label.substr(0, MessageHeader::kLabelBytes));
}

}  // namespace
}  // namespace tandem
