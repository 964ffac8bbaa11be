#include "tandem/plan/calibrate.h"

#include <time.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/base/thread_pool.h"
#include "tandem/compile/memory_plan.h"
#include "tandem/config/mesh.h"
#include "tandem/plan/command_cost.h"
#include "tandem/plan/median.h"
#include "tandem/runtime/session.h"

namespace tandem::plan {
namespace {

Executable without_collectives(const Executable& executable) {
  Executable alone = executable;
  alone.commands.clear();
  alone.live_bytes.clear();
  for (size_t i = 0; i < executable.commands.size(); ++i) {
    if (is_collective(executable.commands[i].op)) continue;
    Command command = executable.commands[i];
    command.waits.clear();
    command.stream = kComputeStream;
    alone.commands.push_back(std::move(command));
    alone.live_bytes.push_back(executable.live_bytes[i]);
  }
  return alone;
}

CompiledStep compute_only(const CompiledStep& step) {
  CompiledStep alone = step;
  alone.pass = without_collectives(step.pass);
  alone.last_pass = without_collectives(step.last_pass);
  alone.update = without_collectives(step.update);
  for (Executable* other : {&alone.eval, &alone.gather, &alone.prefill, &alone.decode}) *other = Executable();
  return alone;
}

// That the calling thread had a core, so far.
double thread_s() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Tokens by chance: a table's rows are not all the same one.
void fill_inputs(Session& session, const Executable& executable, int64_t vocabulary) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(std::max<int64_t>(vocabulary, 2)) - 1);
  for (const Binding& input : executable.inputs) {
    const bool is_tokens = input.slice.type.dtype == DType::I32 &&
                           (input.name.starts_with("tokens") || input.name.starts_with("targets"));
    if (!is_tokens) continue;
    std::vector<int32_t> values(static_cast<size_t>(input.slice.type.shape.elems()));
    std::generate(values.begin(), values.end(), [&] { return token(random); });
    session.write(executable, input.name, std::as_bytes(std::span(values)));
  }
}

// Seconds of each command of an executable, in every repeat.
using Samples = std::vector<std::vector<double>>;

// One rank's computation, on its own threads. What it took, command by command.
class Lane {
 public:
  Lane(const CompiledStep& step, const Backend& backend, int threads, int64_t vocabulary)
      : pool_(threads), session_(compute_only(step), backend, pool_), vocabulary_(vocabulary) {
    session_.initialize(1);
    for (size_t i = 0; i < kLists; ++i) samples_[i].resize(list(i).commands.size());
  }

  static constexpr size_t kLists = 3;
  const Executable& list(size_t i) const {
    const CompiledStep& step = session_.step();
    return i == 0 ? step.pass : i == 1 ? step.last_pass : step.update;
  }
  const Samples& samples(size_t i) const { return samples_[i]; }

  // Seconds of a run of all three; where the caller computes, too, those that it had a core.
  double run() {
    const auto now = [this] { return session_.shares_memory() ? thread_s() : steady_s(); };
    fill_inputs(session_, list(0), vocabulary_);  // each time: a pass may use their memory for something else
    const double start = now();
    session_.run_pass();
    session_.wait();
    const double seconds = now() - start;
    fill_inputs(session_, list(1), vocabulary_);
    const double again = now();
    if (!list(1).commands.empty()) session_.run_last_pass();
    session_.run_update();
    session_.wait();
    return seconds + now() - again;
  }

  void observe() {
    session_.observe([this](const Command& command, size_t index, double, double seconds) {
      for (size_t i = 0; i < kLists; ++i) {
        const std::vector<Command>& commands = list(i).commands;
        if (index < commands.size() && &commands[index] == &command) samples_[i][index].push_back(seconds);
      }
    });
  }
  void stop_observing() { session_.observe({}); }

 private:
  ThreadPool pool_;
  Session session_;
  const int64_t vocabulary_;
  std::array<Samples, kLists> samples_;
};

// All lanes at the same time.
template <typename Do>
void in_all(std::vector<std::unique_ptr<Lane>>& lanes, const Do& each) {
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::exception_ptr error;
  for (size_t i = 0; i < lanes.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        each(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        error = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

// Sums over commands of one signature, in whichever list, config or rank.
struct Sum {
  double seconds = 0;
  int64_t count = 0;
};

class KernelTimes {
 public:
  void add(const Lane& lane) {
    for (size_t i = 0; i < Lane::kLists; ++i) {
      for (size_t at = 0; at < lane.samples(i).size(); ++at) {
        if (lane.samples(i)[at].empty()) continue;
        Sum& sum = sums_[command_signature(lane.list(i).commands[at])];
        const double seconds = median(lane.samples(i)[at]);
        sum.seconds += seconds;
        ++sum.count;
        kernels_s_ += seconds;
        ++commands_;
      }
    }
  }
  void put(Calibration& into) const {
    for (const auto& [signature, sum] : sums_)
      into.kernels[signature] = sum.seconds / static_cast<double>(sum.count);
  }
  double kernels_s() const { return kernels_s_; }
  int64_t commands() const { return commands_; }

 private:
  std::map<std::string, Sum> sums_;
  double kernels_s_ = 0;
  int64_t commands_ = 0;
};

}  // namespace

void measure_kernels(const Config& config, const Backend& backend, const CalibrateOptions& options,
                     Calibration& into) {
  const MeshShape mesh = mesh_shape(config);
  const int threads = thread_count(config, mesh.world());
  const int lanes_here = backend.memory_bytes ? 1 : std::clamp(num_cores() / threads, 1, mesh.world());
  KernelTimes times;
  double plain_s = 0;
  for (const MeshPosition& at : rank_kinds(mesh)) {
    if (options.progress) options.progress(fmt::format("{}: kernels of rank {}", config.name, at.rank()));
    const CompiledStep step =
        compile_config(config, compile_options(config, backend, at, mesh.world()), options.model);
    std::vector<std::unique_ptr<Lane>> lanes(static_cast<size_t>(lanes_here));
    for (auto& lane : lanes) lane = std::make_unique<Lane>(step, backend, threads, config.model.vocab);
    double warm = 0;
    in_all(lanes, [&](size_t i) {
      lanes[i]->run();
      const double seconds = lanes[i]->run();
      if (i == 0) warm = seconds;
    });
    const int fits = static_cast<int>(options.most_repeats_s / (2 * std::max(warm, 1e-6)));
    const int repeats = std::clamp(fits, 2, options.repeats);
    std::vector<std::vector<double>> plain(lanes.size());
    for (auto& lane : lanes) lane->observe();
    in_all(lanes, [&](size_t i) {
      for (int repeat = 0; repeat < repeats; ++repeat) lanes[i]->run();
    });
    for (auto& lane : lanes) lane->stop_observing();
    in_all(lanes, [&](size_t i) {
      for (int repeat = 0; repeat < repeats; ++repeat) plain[i].push_back(lanes[i]->run());
    });
    for (size_t i = 0; i < lanes.size(); ++i) {
      times.add(*lanes[i]);
      plain_s += *std::min_element(plain[i].begin(), plain[i].end());  // whatever else the machine does
    }
  }
  times.put(into);
  if (times.commands() > 0)
    into.launch = std::max(0.0, (plain_s - times.kernels_s()) / static_cast<double>(times.commands()));
}

Talk talk_of(const Config& config, const Backend& backend, const BuildModel& model) {
  const MeshShape mesh = mesh_shape(config);
  Talk talk;
  std::set<int> ranks;
  for (const Axis axis : kAxes) {
    if (mesh.size(axis) > 1) ranks.insert(axis == Axis::Pipeline ? 2 : mesh.size(axis));
  }
  talk.ranks.assign(ranks.begin(), ranks.end());
  if (ranks.empty()) return talk;
  for (const MeshPosition& at : rank_kinds(mesh)) {
    const CompiledStep step =
        compile_config(config, compile_options(config, backend, at, mesh.world()), model);
    for (const Executable* list : {&step.pass, &step.last_pass, &step.update}) {
      for (const Command& command : list->commands) {
        if (!is_collective(command.op)) continue;
        for (const auto* slices : {&command.in, &command.out}) {
          for (const Slice& slice : *slices) talk.most_bytes = std::max(talk.most_bytes, slice.type.bytes());
        }
      }
    }
  }
  return talk;
}

}  // namespace tandem::plan
