#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/system.h"
#include "tandem/base/units.h"
#include "tandem/cli/command.h"
#include "tandem/compile/memory_plan.h"
#include "tandem/metrics/trace.h"
#include "tandem/train/run_session.h"

namespace tandem::cli {
namespace {

struct KernelTime {
  int64_t calls = 0;
  double seconds = 0;
  double flops = 0;
  double fp8_flops = 0;  // of them, by products of 8-bit floats
  double bytes = 0;
};

struct Ceilings {
  double flops;
  double fp8_flops;  // 0 where none are done, or where they could not be measured
  double bandwidth;
};

// How close a kernel is to whichever of the two ceilings binds it: the time its arithmetic needs at peak, or
// its bytes at copy speed, over the time it took.
struct Ceiling {
  double fraction;
  bool compute_bound;
};
Ceiling ceiling(const KernelTime& time, const Ceilings& ceilings) {
  const double fp8_s = ceilings.fp8_flops > 0 ? time.fp8_flops / ceilings.fp8_flops : 0;
  const double compute_s = (time.flops - time.fp8_flops) / ceilings.flops + fp8_s;
  const double memory_s = time.bytes / ceilings.bandwidth;
  return {std::max(compute_s, memory_s) / time.seconds, compute_s >= memory_s};
}

class Profile {
 public:
  Profile(const std::string& trace_path, int64_t steps, const World& world)
      : steps_(steps), rank_(world.at().rank()) {
    if (trace_path.empty()) return;
    trace_ = std::make_unique<TraceWriter>(trace_path);
    if (world.size() == 1) return;
    trace_->name_process(rank_, fmt::format("rank {}", rank_));
    constexpr std::string_view kStreams[kNumStreams] = {"computation", "data axis", "sends", "copies"};
    for (int i = 0; i < kNumStreams; ++i) trace_->name_thread(rank_, i, kStreams[i]);
  }

  void add(const Executable& executable, const Command& command, size_t index, double start_s,
           double seconds) {
    // What runs beside the computation takes none of its time: it is shown apart.
    KernelTime& time =
        kernels_[command.stream == kComputeStream ? command.kernel : command.kernel + " (beside)"];
    ++time.calls;
    time.seconds += seconds;
    time.flops += static_cast<double>(command.flops);
    if (command.op == Op::Fp8Matmul || command.op == Op::Fp8MatmulAcc)
      time.fp8_flops += static_cast<double>(command.flops);
    time.bytes += static_cast<double>(command.bytes);
    if (!trace_) return;
    if (zero_s_ == 0) zero_s_ = start_s;
    const double ts = (start_s - zero_s_) * 1e6;
    TraceEvent event{command.kernel, executable.name, ts, seconds * 1e6};
    event.tid = command.stream;
    event.pid = rank_;
    event.args = {{"block", command.block},
                  {"gflops", static_cast<double>(command.flops) / seconds / 1e9},
                  {"gb_per_s", static_cast<double>(command.bytes) / seconds / 1e9}};
    trace_->add(event);
    if (command.stream != kComputeStream) return;
    trace_->add_counter("activations alive", ts, static_cast<double>(executable.live_bytes[index]), rank_);
  }

  void finish_trace() {
    if (trace_) trace_->finish();
  }

  void print(double step_s, const Ceilings& ceilings, bool json) const {
    std::vector<std::pair<std::string, KernelTime>> rows(kernels_.begin(), kernels_.end());
    std::sort(rows.begin(), rows.end(),
              [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    const auto steps = static_cast<double>(steps_);
    if (json) {
      nlohmann::json list = nlohmann::json::array();
      for (const auto& [name, time] : rows) {
        const Ceiling limit = ceiling(time, ceilings);
        list.push_back({{"kernel", name},
                        {"calls", static_cast<double>(time.calls) / steps},
                        {"ms", time.seconds * 1e3 / steps},
                        {"share", time.seconds / steps / step_s},
                        {"of_ceiling", limit.fraction},
                        {"bound", limit.compute_bound ? "compute" : "memory"}});
      }
      std::printf("%s\n", nlohmann::json{{"step_ms", step_s * 1e3},
                                         {"peak_gflops", ceilings.flops / 1e9},
                                         {"peak_fp8_gflops", ceilings.fp8_flops / 1e9},
                                         {"copy_gb_per_s", ceilings.bandwidth / 1e9},
                                         {"kernels", list}}
                              .dump(1)
                              .c_str());
      return;
    }
    const std::string fp8 =
        ceilings.fp8_flops > 0 ? fmt::format(" ({:.1f} in 8 bits)", ceilings.fp8_flops / 1e9) : "";
    std::printf("%s\n", fmt::format("ceilings: {:.1f} GFLOP/s{}, {:.1f} GB/s; step {:.1f} ms",
                                    ceilings.flops / 1e9, fp8, ceilings.bandwidth / 1e9, step_s * 1e3)
                            .c_str());
    std::printf("%s\n", fmt::format("{:<30} {:>6} {:>10} {:>7} {:>10} {:>8} {:>11}  bound", "kernel", "calls",
                                    "ms/step", "share", "GFLOP/s", "GB/s", "of ceiling")
                            .c_str());
    double covered = 0;
    for (const auto& [name, time] : rows) {
      const Ceiling limit = ceiling(time, ceilings);
      if (!name.ends_with(" (beside)")) covered += time.seconds / steps;
      std::printf("%s\n", fmt::format("{:<30} {:>6.0f} {:>10.2f} {:>6.1f}% {:>10.1f} {:>8.1f} {:>10.1f}%  {}",
                                      name, static_cast<double>(time.calls) / steps,
                                      time.seconds * 1e3 / steps, 100 * time.seconds / steps / step_s,
                                      time.flops / time.seconds / 1e9, time.bytes / time.seconds / 1e9,
                                      100 * limit.fraction, limit.compute_bound ? "compute" : "memory")
                              .c_str());
    }
    std::printf("%s\n", fmt::format("{:<30} {:>6} {:>10.2f} {:>6.1f}%", "(between kernels)", "",
                                    (step_s - covered) * 1e3, 100 * (1 - covered / step_s))
                            .c_str());
  }

 private:
  int64_t steps_;
  int rank_;
  std::map<std::string, KernelTime> kernels_;
  std::unique_ptr<TraceWriter> trace_;
  double zero_s_ = 0;
};

void print_memory(const Session& session, const Backend& backend) {
  const ArenaSizes& sizes = session.step().sizes;
  if (session.shares_memory()) {
    std::printf("%s\n", fmt::format("memory: {} planned, {} resident at most",
                                    format_bytes(total_bytes(sizes)), format_bytes(peak_rss_bytes()))
                            .c_str());
    return;
  }
  const int64_t libraries = session.library_bytes();
  std::printf("%s\n", fmt::format("memory: {} of the GPU's {}, {} of it planned",
                                  format_bytes(device_bytes(sizes) + libraries),
                                  format_bytes(backend.memory_bytes()), format_bytes(device_bytes(sizes)))
                          .c_str());
  std::printf("libraries: %s of it for driver and libraries\n", format_bytes(libraries).c_str());
}

// Each of several ranks writes a file of its own: step.json -> step.rank-1.json.
std::string rank_file(const std::string& path, const World& world) {
  if (path.empty() || world.size() == 1) return path;
  const std::filesystem::path whole(path);
  const std::string name =
      fmt::format("{}.rank-{}{}", whole.stem().string(), world.at().rank(), whole.extension().string());
  return (whole.parent_path() / name).string();
}

}  // namespace

void add_profile(CLI::App& app, Action& action) {
  struct Flags {
    ConfigFlags config;
    int64_t steps = 5;
    std::string trace;
    bool json = false;
  };
  CLI::App* command =
      add_command(app, "profile", "time every kernel of a step against the machine's ceilings",
                  "tandem profile configs/cpu-gpt.yaml --trace step.json   (opens in ui.perfetto.dev)");
  auto flags = std::make_shared<Flags>();
  flags->config.add_to(*command);
  command->add_option("--steps", flags->steps, "steps to measure, after two that are not")
      ->check(whole_number(1))
      ->type_name("N");
  command->add_option("--trace", flags->trace, "write a timeline of kernels and memory")->type_name("FILE");
  command->add_flag("--json", flags->json, "print the table as JSON");
  command->callback([flags, &action] {
    action.run = [flags] {
      const Config config = flags->config.load().config;
      const Backend backend = make_backend(config);
      const World world = join_world(config);
      RunSession run(config, backend, build_model, world);
      Session& session = run.session();
      session.initialize(static_cast<uint64_t>(config.train.seed));
      for (int64_t i = 1; i <= 2; ++i) run.runner().run(i);
      Profile profile(rank_file(flags->trace, world), flags->steps, world);
      double step_s = 0;
      const CompiledStep& compiled = session.step();
      session.observe([&](const Command& item, size_t index, double start_s, double seconds) {
        for (const Executable* executable : {&compiled.pass, &compiled.last_pass, &compiled.update}) {
          const bool here = index < executable->commands.size() && &executable->commands[index] == &item;
          if (here) profile.add(*executable, item, index, start_s, seconds);
        }
      });
      for (int64_t i = 0; i < flags->steps; ++i) {
        const auto start = std::chrono::steady_clock::now();
        run.runner().run(i + 3);
        step_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      }
      profile.finish_trace();
      world.barrier("end of the profile");
      if (!world.leads()) return ExitCode::Done;
      const int threads = session.pool().num_threads();
      const PrecisionPolicy precision = precision_policy(config.precision);
      const Ceilings ceilings{backend.peak_flops(precision.storage, threads),
                              precision.fp8 ? backend.peak_flops(DType::F8E4M3, threads) : 0,
                              backend.copy_bandwidth(threads)};
      profile.print(step_s / static_cast<double>(flags->steps), ceilings, flags->json);
      if (!flags->json) {
        print_memory(session, backend);
        if (!flags->trace.empty())
          std::printf("timeline: %s (open it in ui.perfetto.dev)\n", rank_file(flags->trace, world).c_str());
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
