#include <algorithm>
#include <functional>
#include <string_view>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/comm/connect.h"
#include "tandem/plan/calibrate.h"
#include "tandem/plan/median.h"

namespace tandem::plan {
namespace {

std::span<std::byte> bytes_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

struct Buffers {
  std::vector<float> whole, part;
};

struct Measured {
  std::string_view name;
  bool of_two;  // its time does not depend on how many others there are
  void (*run)(Communicator& comm, Buffers& buffers);
};

constexpr Measured kMeasured[] = {
    {"all_reduce", false,
     [](Communicator& comm, Buffers& b) { comm.all_reduce(bytes_of(b.whole), DType::F32, "calibrate"); }},
    {"reduce_scatter", false,
     [](Communicator& comm, Buffers& b) {
       comm.reduce_scatter(bytes_of(b.whole), DType::F32, bytes_of(b.part), DType::F32, SumInto::Add,
                           "calibrate");
     }},
    {"all_gather", false,
     [](Communicator& comm, Buffers& b) {
       comm.all_gather(bytes_of(b.part), bytes_of(b.whole), "calibrate");
     }},
    {"send", true, [](Communicator& comm, Buffers& b) {  // there and back
       if (comm.rank() == 0) {
         comm.send(bytes_of(b.whole), 1, "calibrate");
         comm.recv(bytes_of(b.whole), 1, "calibrate");
       } else {
         comm.recv(bytes_of(b.whole), 0, "calibrate");
         comm.send(bytes_of(b.whole), 0, "calibrate");
       }
     }}};

constexpr int kRounds = 7;
constexpr int64_t kLeastBytes = 4 << 10, kStep = 4;

// Seconds of a call, the median of some rounds.
double time_of(const Measured& kind, Communicator& comm, int64_t bytes) {
  const auto ranks = static_cast<size_t>(comm.size());
  const size_t part = (static_cast<size_t>(bytes) / sizeof(float) + ranks - 1) / ranks;
  Buffers buffers{std::vector<float>(part * ranks, 1e-3f), std::vector<float>(part, 1e-3f)};
  const auto repeats = static_cast<int>(std::clamp<int64_t>((1 << 20) / bytes, 1, 32));
  std::vector<double> times;
  for (int round = -1; round < kRounds; ++round) {
    comm.barrier("calibrate");
    const double start = steady_s();
    for (int i = 0; i < repeats; ++i) kind.run(comm, buffers);
    const double seconds = (steady_s() - start) / repeats;
    if (round >= 0) times.push_back(kind.of_two ? seconds / 2 : seconds);
  }
  return median(times);
}

}  // namespace

void measure_collectives(int ranks, int64_t most_bytes, Calibration& into) {
  MeshShape shape;
  shape.data = ranks;
  std::vector<Communicators> all = connect_threads(shape, {});
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        Communicator& comm = *all[i].get(Axis::Data);
        for (const Measured& kind : kMeasured) {
          if (kind.of_two && ranks != 2) continue;
          for (int64_t bytes = kLeastBytes; bytes < kStep * most_bytes; bytes *= kStep) {
            const double seconds = time_of(kind, comm, bytes);
            if (i == 0) into.collectives[fmt::format("{} {}", kind.name, ranks)][bytes] = seconds;
          }
        }
      } catch (const std::exception& error) {
        errors[i] = std::current_exception();
        all[i].abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace tandem::plan
