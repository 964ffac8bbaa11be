// Real processes: what each rank says when another one dies, stops, is missing or believes something else.
#include "tandem/comm/connect.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/ranks_test.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RanksOnOneHost : public testing::TestWithParam<Kind> {
 protected:
  // Starts `world_size` ranks that connect and then run the body.
  void start(int world_size, milliseconds timeout, const std::function<std::string(Communicator&)>& body) {
    const int port = free_port();
    ConnectOptions options = options_for(GetParam());
    options.timeout = timeout;
    for (int rank = 0; rank < world_size; ++rank) {
      ranks_.push_back(std::make_unique<RankProcess>([=] {
        const Communicators own =
            connect(world_of(rank, world_size, port), MeshPosition::of(data_mesh(world_size), rank), options);
        return body(*own.get(Axis::Data));
      }));
    }
  }
  std::vector<std::unique_ptr<RankProcess>> ranks_;
};

INSTANTIATE_TEST_SUITE_P(, RanksOnOneHost, testing::Values(Kind::Shm, Kind::Tcp),
                         [](const auto& info) { return info.param == Kind::Shm ? "Shm" : "Tcp"; });

std::string reduce_forever(Communicator& c) {
  std::vector<float> x(50000, 1.0f);
  for (int i = 0;; ++i) {
    c.all_reduce(std::as_writable_bytes(std::span(x)), DType::F32, "gradients");
    if (i == 0 && c.rank() == 0) kill(getppid(), SIGUSR1);  // all have connected
  }
}

// Blocks the signal by which rank 0 says that all have connected, before any rank is started.
class Connected {
 public:
  Connected() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set_, nullptr);
  }
  bool wait() {
    const timespec limit{20, 0};
    return sigtimedwait(&set_, nullptr, &limit) == SIGUSR1;
  }

 private:
  sigset_t set_;
};

TEST_P(RanksOnOneHost, SumTheSameBitsAsThreads) {
  const auto body = [](Communicator& c) {
    std::vector<float> x(30011);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = 1.0f / static_cast<float>(i * 3 + static_cast<size_t>(c.rank()) * 11 + 1);
    c.all_reduce(std::as_writable_bytes(std::span(x)), DType::F32, "x");
    return std::string(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float));
  };
  start(3, seconds(20), body);
  std::string expected;
  run_threads(Kind::Threads, data_mesh(3), [&](int rank, Communicators& own) {
    const std::string mine = body(*own.get(Axis::Data));
    if (rank == 0) expected = mine;
  });
  for (const auto& rank : ranks_) EXPECT_EQ(rank->outcome(), expected);
}

TEST_P(RanksOnOneHost, AKilledRankIsNamedByAllOthers) {
  for (const size_t victim : {size_t{2}, size_t{0}}) {
    Connected connected;
    ranks_.clear();
    start(4, seconds(25), reduce_forever);
    ASSERT_TRUE(connected.wait());
    ranks_[victim]->signal(SIGKILL);
    const std::string name = fmt::format("rank {} (", victim);
    const std::string pid = fmt::format("pid {})", ranks_[victim]->pid());
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (rank == victim) continue;
      const std::string message = ranks_[rank]->outcome();
      EXPECT_TRUE(message.starts_with("all_reduce gradients (data axis): " + name)) << message;
      EXPECT_NE(message.find(pid), std::string::npos) << message;
    }
  }
}

TEST_P(RanksOnOneHost, AStoppedRankIsNamedWhenTheTimeIsOver) {
  const size_t victim = GetParam() == Kind::Shm ? 1 : 0;  // 0 serves the store
  Connected connected;
  start(3, milliseconds(2000), reduce_forever);
  ASSERT_TRUE(connected.wait());
  ranks_[victim]->signal(SIGSTOP);
  const std::string name = fmt::format("rank {} (", victim);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == victim) continue;
    const std::string message = ranks_[rank]->outcome();
    EXPECT_TRUE(message.starts_with("all_reduce gradients (data axis): " + name)) << message;
    EXPECT_NE(message.find("stopped, or cut off from the network"), std::string::npos) << message;
  }
}

TEST_P(RanksOnOneHost, ARankThatEndsWithAnErrorIsNamed) {
  start(3, seconds(20), [](Communicator& c) -> std::string {
    c.barrier("start");
    if (c.rank() == 1) throw DataError("the data is bad");
    c.barrier("next");
    return "no error";
  });
  EXPECT_EQ(ranks_[1]->outcome(), "the data is bad");
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    const std::string message = ranks_[rank]->outcome();
    EXPECT_TRUE(message.starts_with("barrier next (data axis): rank 1 (")) << message;
  }
}

TEST_P(RanksOnOneHost, ALateRankThatLivesIsNamedToo) {
  start(2, milliseconds(1000), [](Communicator& c) -> std::string {
    c.barrier("start");
    if (c.rank() == 1) std::this_thread::sleep_for(seconds(20));
    c.barrier("next");
    return "no error";
  });
  const std::string message = ranks_[0]->outcome();
  EXPECT_TRUE(message.starts_with("barrier next (data axis): rank 1 (")) << message;
  EXPECT_NE(message.find("did not come within 1 s"), std::string::npos) << message;
}

TEST_P(RanksOnOneHost, OutnumberTheProcessorsWithoutCrawling) {
  start(8, seconds(20), [](Communicator& c) {
    std::vector<float> x(20000, 1.0f);
    for (int i = 0; i < 20; ++i) c.all_reduce(std::as_writable_bytes(std::span(x)), DType::F32, "x");
    return std::to_string(x[19999] == std::pow(8.0f, 20.0f));
  });
  for (const auto& rank : ranks_) EXPECT_EQ(rank->outcome(), "1");
}

ConnectOptions short_connect(milliseconds timeout) {
  ConnectOptions options;
  options.secret = kTestSecret;
  options.connect_timeout = timeout;
  return options;
}

TEST(Connect, ListsTheRanksThatDoNotAppear) {
  const int port = free_port();
  const auto as_rank = [&](int rank) {
    return [=]() -> std::string {
      connect(world_of(rank, 5, port), MeshPosition::of(data_mesh(5), rank),
              short_connect(milliseconds(400)));
      return "no error";
    };
  };
  RankProcess zero(as_rank(0)), three(as_rank(3));
  const std::string expected = "ranks 1, 2, 4 of 5 did not appear within 0.4 s; ";
  const std::string message = zero.outcome();
  EXPECT_TRUE(message.starts_with(expected)) << message;
  EXPECT_EQ(three.outcome(), message);
}

TEST(Connect, AWorldOfAnotherSizeOrMeshIsAnErrorOnAllRanks) {
  for (const bool other_mesh : {false, true}) {
    const int port = free_port();
    const auto as_rank = [&](int rank, int world_size, int tensor) {
      return [=]() -> std::string {
        MeshShape shape;
        shape.tensor = tensor;
        shape.data = world_size / tensor;
        connect(world_of(rank, world_size, port), MeshPosition::of(shape, rank), short_connect(seconds(20)));
        return "no error";
      };
    };
    RankProcess zero(as_rank(0, 4, 1)), one(as_rank(1, other_mesh ? 4 : 2, other_mesh ? 2 : 1));
    const std::string message = zero.outcome();
    EXPECT_NE(message.find(other_mesh ? "mesh data 2 x tensor 2 x pipeline 1" : "has world size 2 and"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("all ranks need the same config and WORLD_SIZE"), std::string::npos) << message;
    EXPECT_EQ(one.outcome(), message);
  }
}

TEST(Connect, ARankThatIsThereTwiceIsAnErrorOnAllRanks) {
  const int port = free_port();
  const auto as_rank = [&](int rank) {
    return [=]() -> std::string {
      connect(world_of(rank, 3, port), MeshPosition::of(data_mesh(3), rank), short_connect(seconds(20)));
      return "no error";
    };
  };
  RankProcess zero(as_rank(0)), one(as_rank(1)), twin(as_rank(1));
  const std::string message = zero.outcome();
  EXPECT_TRUE(message.starts_with("rank 1 is there twice: ")) << message;
  EXPECT_EQ(one.outcome(), message);
  EXPECT_EQ(twin.outcome(), message);
}

TEST(Connect, APortInUseAndAnAbsentMasterAreOneLineEach) {
  const Socket taken = listen_at("127.0.0.1", 0);
  RankProcess zero([&]() -> std::string {
    connect(world_of(0, 2, local_port(taken)), MeshPosition::of(data_mesh(2), 0), short_connect(seconds(2)));
    return "no error";
  });
  EXPECT_TRUE(
      zero.outcome().starts_with(fmt::format("port {} on 127.0.0.1: already in use", local_port(taken))));
  const int port = free_port();
  RankProcess one([&]() -> std::string {
    connect(world_of(1, 2, port), MeshPosition::of(data_mesh(2), 1), short_connect(milliseconds(200)));
    return "no error";
  });
  const std::string message = one.outcome();
  EXPECT_TRUE(message.starts_with(fmt::format("store tcp 127.0.0.1:{} of rank 0: not reached", port)))
      << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(Connect, AMeshThatDoesNotFitTheWorldIsAConfigError) {
  EXPECT_THROW(connect(world_of(0, 2, 1), MeshPosition::of(data_mesh(4), 0), {}), ConfigError);
}

}  // namespace
}  // namespace tandem
