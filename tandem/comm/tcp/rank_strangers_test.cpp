// Ranks as processes, and strangers who find each port that a rank opens as soon as it is open: every start
// succeeds, with the same bits.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tandem/comm/key_store/tcp_key_store.h"
#include "tandem/comm/ranks_test.h"
#include "tandem/comm/tcp/link_talk.h"

namespace tandem {
namespace {

using std::chrono::seconds;

constexpr int kRanks = 5;
constexpr int kStarts = 3;
constexpr int kStrangersAtOnce = 40;

std::set<std::string> sockets_of(pid_t pid) {
  std::set<std::string> result;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid), error)) {
    const std::string target = std::filesystem::read_symlink(entry, error).string();
    if (target.starts_with("socket:[")) result.insert(target.substr(8, target.size() - 9));
  }
  return result;
}

// That any of the processes listens at.
std::set<int> ports_of(const std::vector<pid_t>& pids) {
  std::set<std::string> sockets;
  for (const pid_t pid : pids) sockets.merge(sockets_of(pid));
  std::set<int> ports;
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
    if (state == "0A" && sockets.contains(inode)) ports.insert(std::stoi(local.substr(9), nullptr, 16));
  }
  return ports;
}

class Strangers {
 public:
  Strangers(std::vector<pid_t> pids, int known_port)
      : thread_([this, pids = std::move(pids), known_port](const std::stop_token& stop) {
          std::set<int> visited{known_port};
          while (!stop.stop_requested()) {
            for (const int port : ports_of(pids)) {
              if (!visited.insert(port).second) continue;
              visit(port);
              ++num_visited_;
            }
          }
        }) {}
  void await_visits(int num_ports) const {
    const Deadline deadline = std::chrono::steady_clock::now() + seconds(20);
    while (num_visited_ < num_ports && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_GE(num_visited_, num_ports);
  }

 private:
  void visit(int port) {
    for (int i = 0; i < kStrangersAtOnce; ++i) {
      std::string problem;
      Socket guest = connect_once("127.0.0.1", port, std::chrono::steady_clock::now() + seconds(5), &problem);
      if (!guest.open()) return;
      const LinkName name{i % kRanks, i % kRanks + 1, Axis::World, LinkUse::Collectives};
      if (i % 4 == 0)
        send_all(guest, std::string(static_cast<size_t>(1 + i * 53), static_cast<char>(i * 7)), {});
      if (i % 4 == 1) guest = LinkTalk::knock(std::move(guest), name, Secret::random(), "x").take_socket();
      if (i % 4 == 2) send_all(guest, "tandem l", {});
      guests_.push_back(std::move(guest));  // the others are silent
    }
  }

  std::vector<Socket> guests_;
  std::atomic<int> num_visited_{0};  // ports
  std::jthread thread_;
};

std::string sum_of_all(Communicator& c) {
  std::vector<float> x(5003);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = 1.0f / static_cast<float>(i * 7 + static_cast<size_t>(c.rank()) * 13 + 1);
  for (int i = 0; i < 3; ++i) c.all_reduce(std::as_writable_bytes(std::span(x)), DType::F32, "x");
  return std::string(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float));
}

// At the place where ranks meet before they open ports.
void await_arrivals(int port, int count) {
  TcpKeyStore store("127.0.0.1", port, kTestSecret, Serve::No, seconds(20));
  const Deadline deadline = std::chrono::steady_clock::now() + seconds(20);
  while (store.try_get("none/0/arrived") != std::to_string(count) &&
         std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(RankStrangers, KeepNoRankFromStarting) {
  std::string expected;
  run_threads(Kind::Threads, data_mesh(kRanks), [&](int rank, Communicators& own) {
    const std::string mine = sum_of_all(*own.get(Axis::Data));
    if (rank == 0) expected = mine;
  });
  for (int start = 0; start < kStarts; ++start) {
    const int port = free_port();
    std::vector<std::unique_ptr<RankProcess>> ranks;
    std::vector<pid_t> pids;
    const auto start_rank = [&](int rank) {
      ranks.push_back(std::make_unique<RankProcess>([=] {
        const Communicators own = connect(world_of(rank, kRanks, port),
                                          MeshPosition::of(data_mesh(kRanks), rank), options_for(Kind::Tcp));
        return sum_of_all(*own.get(Axis::Data));
      }));
      pids.push_back(ranks.back()->pid());
    };
    for (int rank = 0; rank < kRanks - 1; ++rank) start_rank(rank);
    await_arrivals(port, kRanks - 1);
    // The others open their ports and wait for the one that is stopped, until the strangers have come.
    const RankProcess& late = *ranks[kRanks - 2];
    late.signal(SIGSTOP);
    start_rank(kRanks - 1);
    {
      const Strangers strangers(pids, port);
      strangers.await_visits(3);
      late.signal(SIGCONT);
      for (const auto& rank : ranks) {
        const std::string outcome = rank->outcome();
        ASSERT_TRUE(outcome == expected) << "start " << start << ": " << outcome.substr(0, 200);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
