#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/cli/command.h"
#include "tandem/cli/kernel_table.h"
#include "tandem/compile/memory_plan.h"
#include "tandem/metrics/trace.h"
#include "tandem/train/device_threads.h"
#include "tandem/train/run_session.h"

namespace tandem::cli {
namespace {

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
    KernelTime& time = (command.stream == kComputeStream ? computing_ : beside_)[command.kernel];
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

  Profiled result(double step_s) const { return {computing_, beside_, steps_, step_s}; }

 private:
  int64_t steps_;
  int rank_;
  std::map<std::string, KernelTime> computing_, beside_;
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

struct Flags {
  ConfigFlags config;
  int64_t steps = 5;
  std::string trace;
  bool json = false;
};

// One rank's part. Rank 0 has the table.
ExitCode run_profile(const Flags& flags, const Config& config, const Backend& backend,
                     const BuildModel& model, const World& world) {
  RunSession run(config, backend, model, world);
  Session& session = run.session();
  session.initialize(static_cast<uint64_t>(config.train.seed));
  for (int64_t i = 1; i <= 2; ++i) run.runner().run(i);
  Profile profile(rank_file(flags.trace, world), flags.steps, world);
  double step_s = 0;
  const CompiledStep& compiled = session.step();
  session.observe([&](const Command& item, size_t index, double start_s, double seconds) {
    for (const Executable* executable : {&compiled.pass, &compiled.last_pass, &compiled.update}) {
      const bool here = index < executable->commands.size() && &executable->commands[index] == &item;
      if (here) profile.add(*executable, item, index, start_s, seconds);
    }
  });
  for (int64_t i = 0; i < flags.steps; ++i) {
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
  const Profiled profiled = profile.result(step_s / static_cast<double>(flags.steps));
  if (flags.json) {
    std::printf("%s\n", kernel_json(profiled, ceilings).dump(1).c_str());
    return ExitCode::Done;
  }
  std::printf("%s", kernel_table(profiled, ceilings).c_str());
  print_memory(session, backend);
  if (!flags.trace.empty())
    std::printf("timeline: %s (open it in ui.perfetto.dev)\n", rank_file(flags.trace, world).c_str());
  return ExitCode::Done;
}

}  // namespace

void add_profile(CLI::App& app, Action& action) {
  CLI::App* command =
      add_command(app, "profile", "time every kernel of a step against the machine's ceilings",
                  "tandem profile configs/cpu-gpt.yaml --trace step.json   (opens in ui.perfetto.dev)");
  auto flags = std::make_shared<Flags>();
  flags->config.add_to(*command);
  add_insecure(*command);
  command->add_option("--steps", flags->steps, "steps to measure, after two that are not")
      ->check(whole_number(1))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--trace", flags->trace, "write a timeline of kernels and memory")->type_name("FILE");
  command->add_flag("--json", flags->json, "print the table as JSON");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      const WorldInfo info = read_world();
      const Config config = flags->config.load_to_run(info);
      const Backend backend = make_backend(config, info);
      return run_in_world(config, info, [&](const World& world) {
        return run_profile(*flags, config, backend, action.model, world);
      });
    };
  });
}

}  // namespace tandem::cli
