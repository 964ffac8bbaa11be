// Transports in turns, in one run, between processes of this host: collectives and messages from 4 KiB to 64
// MiB.
//   transport_bench [ranks] [rounds] [transport,transport]
// Prints the median microseconds of each on rank 0, and the ratio of the first to the second; then the same
// of the time that rank 0 had a processor, which others who use the machine disturb less.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "tandem/comm/connect.h"
#include "tandem/comm/tcp/tcp_socket.h"

namespace tandem {
namespace {

struct Named {
  std::string name;
  Transport transport;
};
const Named kTransports[] = {{"tcp", Transport::Tcp}, {"shm", Transport::Shm}};

const Named& transport_named(const std::string& name) {
  for (const Named& named : kTransports) {
    if (named.name == name) return named;
  }
  std::fprintf(stderr, "transport_bench: expected tcp or shm, found '%s'\n", name.c_str());
  std::exit(2);
}

struct Work {
  const char* name;
  std::function<void(Communicator&, std::vector<float>& whole, std::vector<float>& part)> run;
};

std::span<std::byte> bytes_of(std::vector<float>& x) { return std::as_writable_bytes(std::span(x)); }

const Work kWork[] = {
    {"all_gather",
     [](Communicator& c, auto& whole, auto& part) { c.all_gather(bytes_of(part), bytes_of(whole), "x"); }},
    {"reduce_scatter",
     [](Communicator& c, auto& whole, auto& part) {
       c.reduce_scatter(bytes_of(whole), DType::F32, bytes_of(part), DType::F32, false, "x");
     }},
    {"all_reduce",
     [](Communicator& c, auto& whole, auto&) { c.all_reduce(bytes_of(whole), DType::F32, "x"); }},
    {"send, recv back", [](Communicator& c, auto& whole, auto&) {
       if (c.rank() == 0) {
         c.send(bytes_of(whole), 1, "x");
         c.recv(bytes_of(whole), 1, "x");
       } else if (c.rank() == 1) {
         c.recv(bytes_of(whole), 0, "x");
         c.send(bytes_of(whole), 0, "x");
       }
     }}};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void run_rank(int rank, int num_ranks, int rounds, const std::vector<Named>& transports,
              const std::vector<int>& ports) {
  MeshShape shape;
  shape.data = num_ranks;
  std::vector<Communicators> all;
  for (size_t i = 0; i < transports.size(); ++i) {
    WorldInfo world;
    world.rank = rank;
    world.world_size = num_ranks;
    world.master_port = ports[i];
    ConnectOptions options;
    options.transport = transports[i].transport;
    all.push_back(connect(world, MeshPosition::of(shape, rank), options));
  }
  if (rank == 0) {
    std::printf("%d ranks, medians of %d rounds, us\n%-16s %10s", num_ranks, rounds, "", "bytes");
    for (const char* what : {"", " cpu"}) {
      for (const Named& named : transports) std::printf(" %10s", (named.name + what).c_str());
      if (transports.size() > 1) std::printf(" %8s", "ratio");
    }
    std::printf("\n");
  }
  for (const Work& work : kWork) {
    for (const int64_t bytes : {4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20}) {
      std::vector<float> whole(static_cast<size_t>(bytes / 4), 1e-3f);
      std::vector<float> part(whole.size() / static_cast<size_t>(num_ranks), 1e-3f);
      const int repeats = static_cast<int>(std::clamp<int64_t>((4 << 20) / bytes, 1, 100));
      std::vector<std::vector<double>> times(transports.size()), busy(transports.size());
      for (int round = -1; round < rounds; ++round) {
        for (size_t i = 0; i < transports.size(); ++i) {
          Communicator& comm = *all[i].get(Axis::Data);
          comm.barrier("round");
          const auto start = std::chrono::steady_clock::now();
          const std::clock_t busy_start = std::clock();
          for (int repeat = 0; repeat < repeats; ++repeat) work.run(comm, whole, part);
          const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
          if (round < 0) continue;
          times[i].push_back(taken.count() / repeats);
          busy[i].push_back(1e6 / CLOCKS_PER_SEC * static_cast<double>(std::clock() - busy_start) / repeats);
        }
      }
      if (rank != 0) continue;
      std::printf("%-16s %10lld", work.name, static_cast<long long>(bytes));
      for (const auto& measured : {times, busy}) {
        for (const auto& each : measured) std::printf(" %10.1f", median(each));
        if (measured.size() > 1) std::printf(" %8.2f", median(measured[0]) / median(measured[1]));
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  for (Communicators& communicators : all) communicators.get(Axis::Data)->barrier("end");
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  using namespace tandem;
  const int num_ranks = argc > 1 ? std::atoi(argv[1]) : 2, rounds = argc > 2 ? std::atoi(argv[2]) : 11;
  std::string names = argc > 3 ? argv[3] : "tcp,shm";
  std::vector<Named> transports;
  for (size_t at = 0; at <= names.size();) {
    const size_t comma = std::min(names.find(',', at), names.size());
    transports.push_back(transport_named(names.substr(at, comma - at)));
    at = comma + 1;
  }
  std::vector<int> ports;
  for (size_t i = 0; i < transports.size(); ++i) ports.push_back(local_port(listen_at("127.0.0.1", 0)));
  bool failed = false;
  std::vector<pid_t> children;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        run_rank(rank, num_ranks, rounds, transports, ports);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        _exit(1);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    failed = waitpid(child, &status, 0) < 0 || status != 0 || failed;
  }
  return failed ? 1 : 0;
}
