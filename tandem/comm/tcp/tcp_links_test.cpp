// Ranks find each other whoever else comes to their ports.
#include "tandem/comm/tcp/tcp_links.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/ranks_test.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Deadline in(milliseconds time) { return std::chrono::steady_clock::now() + time; }

// The ranks of one world as threads, each with a port; the tickets lie in memory.
class World {
 public:
  explicit World(int size, const Secret& secret = kTestSecret) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<TcpLinks>("127.0.0.1", rank, "run/0/", secret));
      tickets_.push_back(ranks_.back()->ticket());
    }
  }
  std::string error_of(int rank) {
    try {
      connect(rank, in(milliseconds(100)));
    } catch (const CommError& error) {
      return error.what();
    }
    return "no error";
  }
  int port(int rank) const { return ranks_[static_cast<size_t>(rank)]->port(); }
  std::string& ticket(int rank) { return tickets_[static_cast<size_t>(rank)]; }

  std::vector<LinkName> names(int rank) const {
    std::vector<LinkName> result;
    for (int peer = 0; peer < static_cast<int>(ranks_.size()); ++peer) {
      for (const Axis axis : {Axis::World, Axis::Data}) {
        for (const LinkUse use : {LinkUse::Collectives, LinkUse::Messages})
          if (peer != rank) result.push_back({std::min(peer, rank), std::max(peer, rank), axis, use});
      }
    }
    return result;
  }
  std::map<LinkName, Socket> connect(int rank, Deadline deadline) {
    return ranks_[static_cast<size_t>(rank)]->connect(
        names(rank),
        {.deadline = deadline,
         .ticket_of = [&](int peer) { return ticket(peer); },
         .look = [] {},
         .late = [](int peer,
                    const std::string& problem) { throw CommError("rank {} is late {}", peer, problem); }});
  }

  // Connects all, says a word on every link, and checks that it comes to the right one. `meanwhile` happens
  // while rank 0 waits for the others.
  void meet(const std::function<void()>& meanwhile = [] {}) {
    const int size = static_cast<int>(ranks_.size());
    std::vector<std::map<LinkName, Socket>> links(ranks_.size());
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < size; ++rank) {
        if (rank == 1) meanwhile();
        threads.emplace_back([&, rank] {
          try {
            links[static_cast<size_t>(rank)] = connect(rank, in(seconds(30)));
          } catch (const CommError& error) {
            ADD_FAILURE() << "rank " << rank << ": " << error.what();
          }
        });
      }
    }
    const auto word = [](int rank, const LinkName& name) {
      return fmt::format("{:04} {} {}", rank, static_cast<int>(name.axis), static_cast<int>(name.use));
    };
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_EQ(links[static_cast<size_t>(rank)].size(), names(rank).size());
      for (const auto& [name, socket] : links[static_cast<size_t>(rank)])
        ASSERT_TRUE(send_all(socket, word(rank, name), in(seconds(5))));
    }
    for (int rank = 0; rank < size; ++rank) {
      for (const auto& [name, socket] : links[static_cast<size_t>(rank)]) {
        const std::string expected = word(name.server + name.client - rank, name);
        std::string heard;
        while (heard.size() < expected.size() && receive_some(socket, heard, in(seconds(5)))) continue;
        EXPECT_EQ(heard, expected);
      }
    }
  }

 private:
  std::vector<std::unique_ptr<TcpLinks>> ranks_;
  std::vector<std::string> tickets_;
};

Socket visit(int port) {
  std::string problem;
  Socket socket = connect_once("127.0.0.1", port, in(seconds(5)), &problem);
  EXPECT_TRUE(socket.open()) << problem;
  return socket;
}

// Until the other side has no more to say, or `bytes` have come.
std::string hear(const Socket& socket, size_t bytes) {
  std::string heard;
  while (heard.size() < bytes && receive_some(socket, heard, in(seconds(10)), bytes - heard.size())) continue;
  return heard;
}

constexpr size_t kKnockBytes = 20, kOpeningBytes = 40, kClientProofBytes = 64, kServerProofBytes = 32;
const LinkName kFirstLink{0, 1, Axis::World, LinkUse::Collectives};

TEST(TcpLinks, ConnectEveryPairOfRanks) {
  for (const int size : {2, 3, 8}) World(size).meet();
}

TEST(TcpLinks, CloseThePortOnceAllAreConnected) {
  World world(2);
  const int port = world.port(0);
  world.meet();
  std::string problem;
  EXPECT_FALSE(connect_once("127.0.0.1", port, in(seconds(5)), &problem).open());
}

TEST(TcpLinks, LetNoNumberOfSilentGuestsKeepARankOut) {
  World world(2);
  std::vector<Socket> silent;
  const auto come = [&] {
    for (int i = 0; i < 200; ++i) silent.push_back(visit(world.port(0)));
  };
  come();
  world.meet([&] {
    come();
    come();
  });
}

TEST(TcpLinks, LetNoGarbageKeepARankOut) {
  World world(3);
  std::vector<Socket> guests;
  for (int i = 0; i < 200; ++i) {
    guests.push_back(visit(world.port(i % 3)));
    const std::string garbage(static_cast<size_t>(1 + i * 37), static_cast<char>(i * 131));
    send_all(guests.back(), garbage, in(seconds(5)));
    if (i % 2 == 0) guests.back().close();
  }
  world.meet();
}

// More of them than are heard at a time, for a link that a rank is about to make.
TEST(TcpLinks, LetNoHalfHandshakesKeepARankOut) {
  World world(2);
  std::vector<Socket> guests;
  for (int i = 0; i < 60; ++i) {
    LinkTalk talk = LinkTalk::knock(visit(world.port(0)), kFirstLink, kTestSecret, "another purpose");
    guests.push_back(talk.take_socket());
    if (i % 3 == 0) send_all(guests.back(), std::string(kClientProofBytes / 2, 'x'), in(seconds(5)));
  }
  world.meet();
}

TEST(TcpLinks, BelieveNobodyWithoutTheSecret) {
  const Secret other = Secret::random();
  World world(2), others(2, other);
  // A rank of another launch, which was given this one's ticket.
  others.ticket(0) = world.ticket(0);
  world.meet([&] { EXPECT_TRUE(others.error_of(1).starts_with("rank 0 is late at")); });
}

TEST(TcpLinks, BelieveNobodyWithoutTheTicket) {
  World world(2), others(2);
  std::string ticket = world.ticket(0), other_ticket = others.ticket(0);
  const auto fields = take_frame(ticket), other_fields = take_frame(other_ticket);
  others.ticket(0) = encode_frame({fields->at(0), fields->at(1), other_fields->at(2)});
  world.meet([&] { EXPECT_TRUE(others.error_of(1).starts_with("rank 0 is late at")); });
}

// Somebody between the ranks keeps rank 1's proof to itself, and uses it on a connection of its own.
TEST(TcpLinks, RefuseAProofThatIsReplayed) {
  World world(2);
  const Socket between = listen_at("127.0.0.1", 0);
  std::string ticket = world.ticket(0);
  const std::vector<std::string> place = take_frame(ticket).value();
  const int port = world.port(0);
  world.ticket(0) = encode_frame({place[0], std::to_string(local_port(between)), place[2]});

  std::atomic<bool> refused{false};
  std::vector<std::jthread> pumps;
  std::jthread proxy([&] {
    const auto accept_one = [&] {
      pollfd entry{between.fd(), POLLIN, 0};
      poll(&entry, 1, 20000);
      return Socket(accept(between.fd(), nullptr, nullptr));
    };
    std::string recorded;
    {
      const Socket client = accept_one(), server = visit(port);
      recorded = hear(client, kKnockBytes);
      send_all(server, recorded, in(seconds(5)));
      send_all(client, hear(server, kOpeningBytes), in(seconds(5)));
      recorded += hear(client, kClientProofBytes);
    }
    const Socket own = visit(port);
    send_all(own, recorded, in(seconds(5)));
    EXPECT_EQ(hear(own, kOpeningBytes).size(), kOpeningBytes);
    const std::string answer = hear(own, kServerProofBytes);
    refused = answer == std::string(answer.size(), '\0');
    // From here on an honest way; the links stay up until the test ends.
    for (size_t i = 0; i < world.names(1).size(); ++i) {
      auto client = std::make_shared<Socket>(accept_one()), server = std::make_shared<Socket>(visit(port));
      for (const auto& [from, to] : {std::pair(client, server), std::pair(server, client)}) {
        pumps.emplace_back([from = from, to = to] {
          std::string bytes;
          while (receive_some(*from, bytes, in(seconds(30)))) {
            if (!send_all(*to, bytes, in(seconds(5)))) break;
            bytes.clear();
          }
          to->shut_down();
        });
      }
    }
  });
  world.meet();
  EXPECT_TRUE(refused);
}

TEST(TcpLinks, TellWhichRankDoesNotComeAndWhy) {
  World world(3);
  // Rank 0 listens, but does not answer.
  EXPECT_EQ(world.error_of(2), fmt::format("rank 0 is late at 127.0.0.1 port {}: no answer", world.port(0)));
  EXPECT_EQ(world.error_of(0), "rank 1 is late ");
}

TEST(TcpLinks, GiveUpWhenToldTo) {
  TcpLinks links("127.0.0.1", 0, "run/0/", kTestSecret);
  const auto connect = [&] {
    links.connect({kFirstLink}, {.deadline = in(seconds(20)),
                                 .ticket_of = {},
                                 .look = [] { throw CommError("rank 1 is gone"); },
                                 .late = {}});
  };
  EXPECT_THROW(connect(), CommError);
}

}  // namespace
}  // namespace tandem
