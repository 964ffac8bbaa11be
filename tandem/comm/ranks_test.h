// Ranks for tests: threads of this process, or real processes whose outcome is read through a pipe.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tandem/comm/connect.h"
#include "tandem/comm/tcp/free_port.h"
#include "tandem/comm/tcp/tcp_socket.h"

namespace tandem {

inline const Secret kTestSecret = Secret::from_hex("000102030405060708090a0b0c0d0e0f", "test");

inline WorldInfo world_of(int rank, int world_size, int port) {
  WorldInfo world;
  world.rank = world.local_rank = rank;
  world.world_size = world.local_world_size = world_size;
  world.master_port = port;
  return world;
}

inline MeshShape data_mesh(int size) {
  MeshShape shape;
  shape.data = size;
  return shape;
}

enum class Kind { Threads, Shm, Tcp };

inline ConnectOptions options_for(Kind kind) {
  ConnectOptions options;
  options.timeout = options.connect_timeout = std::chrono::seconds(30);
  options.secret = kTestSecret;
  options.transport = kind == Kind::Tcp ? Transport::Tcp : Transport::Shm;
  return options;
}

// Runs `body` as every rank of the mesh at once, each in a thread; rethrows the first exception.
inline void run_threads(Kind kind, const MeshShape& shape,
                        const std::function<void(int, Communicators&)>& body) {
  const int world_size = shape.world(), port = free_port();
  std::vector<Communicators> joined;
  if (kind == Kind::Threads) joined = connect_threads(shape, options_for(kind));
  std::vector<std::exception_ptr> failures(static_cast<size_t>(world_size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < world_size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          Communicators own = kind == Kind::Threads
                                  ? std::move(joined[static_cast<size_t>(rank)])
                                  : connect(world_of(rank, world_size, port), MeshPosition::of(shape, rank),
                                            options_for(kind));
          body(rank, own);
        } catch (...) {
          failures[static_cast<size_t>(rank)] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// A process that runs `body` and reports what it returned, or the message of what it threw.
class RankProcess {
 public:
  explicit RankProcess(const std::function<std::string()>& body) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ends[0]);
      std::string text;
      try {
        text = body();
      } catch (const std::exception& error) {
        text = error.what();
      }
      if (write(ends[1], text.data(), text.size()) < 0) _exit(1);
      _exit(0);
    }
    close(ends[1]);
    reader_ = Socket(ends[0]);
  }
  ~RankProcess() {
    signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { kill(pid_, number); }
  std::string outcome() {  // waits for it; "timeout" after half a minute
    std::string text;
    char buffer[1024];
    for (;;) {
      pollfd entry{reader_.fd(), POLLIN, 0};
      if (poll(&entry, 1, 30000) <= 0) return "timeout";
      const ssize_t count = read(reader_.fd(), buffer, sizeof(buffer));
      if (count <= 0) return text.empty() ? death() : text;
      text.append(buffer, static_cast<size_t>(count));
    }
  }

 private:
  std::string death() {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
    return info.si_code == CLD_EXITED ? "" : "died of signal " + std::to_string(info.si_status);
  }

  pid_t pid_ = -1;
  Socket reader_;
};

}  // namespace tandem
