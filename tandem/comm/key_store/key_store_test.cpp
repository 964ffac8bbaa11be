// The same promises of every store: threads as clients, and what each says when it is down.
#include "tandem/comm/key_store/key_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/comm/key_store/tcp_key_store.h"
#include "tandem/comm/ranks_test.h"
#include "tandem/comm/tcp/own_address.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Secret& kSecret = kTestSecret;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// etcd as a child process on free ports, in a directory that goes with it.
class EtcdServer {
 public:
  EtcdServer() {
    const std::string client = "http://127.0.0.1:" + std::to_string(port_ = free_port());
    const std::string peer = "http://127.0.0.1:" + std::to_string(free_port());
    const std::string directory = directory_.path().string(), cluster = "default=" + peer;
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(null, 2);
    execlp("etcd", "etcd", "--data-dir", directory.c_str(), "--listen-client-urls", client.c_str(),
           "--advertise-client-urls", client.c_str(), "--listen-peer-urls", peer.c_str(),
           "--initial-advertise-peer-urls", peer.c_str(), "--initial-cluster", cluster.c_str(), nullptr);
    _exit(127);
  }
  ~EtcdServer() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  int port() const { return port_; }
  bool running() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  const TemporaryDirectory directory_;
  int port_ = 0;
  pid_t pid_ = -1;
};

class EveryKeyStore : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "tcp") {
      const int port = free_port();
      address_ = "tcp://127.0.0.1:" + std::to_string(port);
      served_ = make_key_store(address_, true, seconds(5), kSecret);
    } else if (GetParam() == "file") {
      address_ = "file://" + (directory_.path() / "store").string();
    } else {
      if (std::system("command -v etcd > /dev/null") != 0)
        GTEST_SKIP() << "etcd is not installed (Debian: etcd-server)";
      etcd_ = std::make_unique<EtcdServer>();
      address_ = "etcd://127.0.0.1:" + std::to_string(etcd_->port()) + "/test";
      for (int i = 0; i < 200 && etcd_->running(); ++i) {
        if (message_of([&] { open(); }) == "no error") break;
        std::this_thread::sleep_for(milliseconds(50));
      }
    }
    store_ = open();
  }
  std::unique_ptr<KeyStore> open() { return make_key_store(address_, false, seconds(5), kSecret); }

  std::string address_;
  const TemporaryDirectory directory_;
  std::unique_ptr<EtcdServer> etcd_;
  std::unique_ptr<KeyStore> served_, store_;
};

INSTANTIATE_TEST_SUITE_P(, EveryKeyStore, testing::Values("tcp", "file", "etcd"),
                         [](const auto& info) { return info.param; });

TEST_P(EveryKeyStore, KeepsAndRemovesValues) {
  const std::string binary("a\0b\n\xff", 5);
  store_->set("run/1/x y", binary);
  EXPECT_EQ(open()->get("run/1/x y", seconds(1)), binary);
  store_->set("run/1/x y", "");
  EXPECT_EQ(store_->try_get("run/1/x y"), "");
  store_->remove("run/1/x y");
  store_->remove("run/1/x y");
  EXPECT_EQ(store_->try_get("run/1/x y"), std::nullopt);
  store_->set("run", "1");  // a key may be the beginning of others
  store_->set("run/", "2");
  EXPECT_EQ(store_->try_get("run"), "1");
}

TEST_P(EveryKeyStore, GetWaitsForTheKeyAndSaysWhichDidNotCome) {
  std::jthread writer([&] {
    const auto other = open();
    std::this_thread::sleep_for(milliseconds(30));
    other->set("late", "here");
  });
  EXPECT_EQ(store_->get("late", seconds(10)), "here");
  const std::string message = message_of([&] { store_->get("never", milliseconds(50)); });
  EXPECT_EQ(message, "store " + store_->description() + ": key 'never' did not appear within 0.05 s");
}

TEST_P(EveryKeyStore, AddAndSetIfMissingAreAtomic) {
  constexpr int kThreads = 4, kTimes = 25;
  std::atomic<int> num_first{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const auto own = open();
        for (int i = 0; i < kTimes; ++i) {
          own->add("count", 2);
          const std::string mine = std::to_string(t);
          num_first += own->set_if_missing("first" + std::to_string(i), mine) == mine;
        }
      });
    }
  }
  EXPECT_EQ(store_->add("count", 0), 2 * kThreads * kTimes);
  EXPECT_EQ(num_first, kTimes);
  store_->set("word", "abc");
  EXPECT_NE(message_of([&] { store_->add("word", 1); }).find("'word'"), std::string::npos);
}

TEST(MakeKeyStore, RefusesWhatIsNoAddress) {
  EXPECT_THROW(make_key_store("redis://h:1", false, seconds(1), kSecret), ConfigError);
  EXPECT_THROW(make_key_store("/tmp/x", false, seconds(1), kSecret), ConfigError);
  EXPECT_EQ(message_of([] { make_key_store("tcp://host", false, seconds(1), kSecret); }),
            "store address 'tcp://host': expected host:port after the scheme, found 'host'");
}

TEST(TcpKeyStore, NamesThePortThatIsInUse) {
  const TcpKeyStore first("127.0.0.1", 0, kSecret, Serve::OneHost, seconds(5));
  const auto serve_there = [&] {
    TcpKeyStore("127.0.0.1", first.port(), kSecret, Serve::OneHost, seconds(1));
  };
  EXPECT_THROW(serve_there(), ListenError);
  const std::string message = message_of(serve_there);
  EXPECT_TRUE(message.starts_with("port " + std::to_string(first.port()) + " on 127.0.0.1: already in use"))
      << message;
}

TEST(TcpKeyStore, SaysThatNobodyServesIt) {
  const int port = free_port();
  const std::string message =
      message_of([&] { TcpKeyStore("127.0.0.1", port, kSecret, Serve::No, milliseconds(50)); });
  EXPECT_NE(message.find(std::to_string(port) +
                         ": not reached within 0.05 s: Connection refused; is rank 0 running"),
            std::string::npos)
      << message;
}

TEST(TcpKeyStore, SaysWhenItGoesDown) {
  auto served = std::make_unique<TcpKeyStore>("127.0.0.1", 0, kSecret, Serve::OneHost, seconds(5));
  TcpKeyStore client("127.0.0.1", served->port(), kSecret, Serve::No, seconds(5));
  client.set("a", "b");
  served.reset();
  const std::string message = message_of([&] { client.set("a", "c"); });
  EXPECT_NE(message.find("is down"), std::string::npos) << message;
}

TEST(TcpKeyStore, SaysWhoseItIsWhenItGoesDown) {
  auto served = std::make_unique<TcpKeyStore>("127.0.0.1", 0, kSecret, Serve::OneHost, seconds(5));
  TcpKeyStore client("127.0.0.1", served->port(), kSecret, Serve::No, seconds(5), seconds(5), "rank 0");
  const std::string name = "store tcp 127.0.0.1:" + std::to_string(served->port()) + " of rank 0: is down";
  served.reset();
  const std::string message = message_of([&] { client.set("a", "c"); });
  EXPECT_TRUE(message.starts_with(name)) << message;
}

bool reaches(const std::string& address, int port) {
  std::string problem;
  return connect_once(address, port, std::chrono::steady_clock::now() + seconds(5), &problem).open();
}

TEST(TcpKeyStore, IsReachedByItsOwnAddressOnly) {
  for (const Serve serve : {Serve::OneHost, Serve::ManyHosts}) {
    for (const char* host : {"127.0.0.1", "localhost"}) {
      const TcpKeyStore served(host, 0, kSecret, serve, seconds(5));
      EXPECT_TRUE(reaches("127.0.0.1", served.port()));
      EXPECT_FALSE(reaches("127.0.0.3", served.port()));
      if (outer_address() != kLoopback) {
        EXPECT_FALSE(reaches(outer_address(), served.port()));
      }
    }
  }
}

bool machine_has_a_name() {
  try {
    listen_at(hostname(), 0);
    return true;
  } catch (const ListenError&) {
    return false;
  }
}

// A pod begins before the names of its cluster know it.
TEST(TcpKeyStore, ANameThatNobodyKnowsYetIsTheMachinesWhereItBeginsWithIts) {
  if (!machine_has_a_name()) GTEST_SKIP() << "the machine's name leads nowhere";
  EXPECT_FALSE(listen_by_name(hostname() + ".train.invalid", 0, true).empty());
  for (const std::string& other : {std::string("elsewhere.invalid"), hostname() + "0.train.invalid"})
    EXPECT_THROW(listen_by_name(other, 0, true), ListenError);
}

// A machine's own name often leads to loopback only, which is not where others look for it.
TEST(TcpKeyStore, UnderTheMachinesNameItIsReachedFromElsewhereWhereOthersAre) {
  if (!machine_has_a_name()) GTEST_SKIP() << "the machine's name leads nowhere";
  const TcpKeyStore alone(hostname(), 0, kSecret, Serve::OneHost, seconds(5));
  EXPECT_TRUE(reaches(hostname(), alone.port()));
  EXPECT_FALSE(reaches("127.0.0.3", alone.port()));
  const TcpKeyStore served(hostname(), 0, kSecret, Serve::ManyHosts, seconds(5));
  EXPECT_TRUE(reaches(hostname(), served.port()));
  EXPECT_TRUE(reaches(outer_address(), served.port()));
  EXPECT_FALSE(reaches("127.0.0.3", served.port()));
}

TEST(TcpKeyStore, ALifelineThatBreaksLeavesItsLastWords) {
  TcpKeyStore served("127.0.0.1", 0, kSecret, Serve::OneHost, seconds(5));
  TcpKeyStore polite("127.0.0.1", served.port(), kSecret, Serve::No, seconds(5));
  polite.open_lifeline("rank 1", "end", "rank 1 is gone");
  polite.say_farewell();
  polite.hang_up();
  {
    TcpKeyStore killed("127.0.0.1", served.port(), kSecret, Serve::No, seconds(5));
    killed.open_lifeline("rank 2", "end", "rank 2 is gone");
  }
  EXPECT_EQ(served.get("end", seconds(5)), "rank 2 is gone");
}

TEST(FileKeyStore, IsNotADirectoryThatOthersMayWriteTo) {
  const TemporaryDirectory temporary;
  const std::filesystem::path& directory = temporary.path();
  for (const mode_t mode : {0777u, 0775u, 0702u}) {
    chmod(directory.c_str(), mode);
    const std::string message =
        message_of([&] { make_key_store("file://" + directory.string(), false, seconds(1), kSecret); });
    EXPECT_NE(message.find("others may write there"), std::string::npos) << message;
  }
  chmod(directory.c_str(), 0755);
  make_key_store("file://" + directory.string(), false, seconds(1), kSecret)->set("key", "value");
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    EXPECT_EQ(file.status().permissions() &
                  (std::filesystem::perms::group_all | std::filesystem::perms::others_all),
              std::filesystem::perms::none)
        << file.path();
  }
}

TEST(EtcdKeyStore, SaysThatItIsDown) {
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  const std::string message =
      message_of([&] { make_key_store("etcd://" + address, false, seconds(1), kSecret); });
  EXPECT_TRUE(message.starts_with("store etcd " + address + ": cannot be reached")) << message;
}

}  // namespace
}  // namespace tandem
