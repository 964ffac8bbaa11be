#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/cli/command.h"
#include "tandem/cli/draw.h"
#include "tandem/cli/generate.h"
#include "tandem/config/enum_names.h"
#include "tandem/config/mesh.h"
#include "tandem/train/compile_config.h"
#include "tandem/train/device_threads.h"
#include "tandem/train/run_data.h"
#include "tandem/train/run_session.h"

namespace tandem::cli {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What this rank sends in one step: as planned, and as its communicators count it.
nlohmann::json planned_sent(const CompiledStep& step, int64_t accumulation) {
  nlohmann::json sent = nlohmann::json::object();
  for (Axis axis : kAxes) {
    if (step.position.size(axis) == 1) continue;
    sent[std::string(axis_name(axis))] = sent_per_step(step, axis, accumulation);
  }
  return sent;
}

nlohmann::json counted_sent(const World& world) {
  nlohmann::json sent = nlohmann::json::object();
  for (Axis axis : kAxes) {
    if (world.at().size(axis) == 1) continue;
    sent[std::string(axis_name(axis))] = world.comms()->get(axis)->counters().bytes_sent;
  }
  return sent;
}

// Of all communicators: windows and buffers that are not part of the plan.
int64_t communicator_bytes(const World& world) {
  int64_t bytes = 0;
  for (Axis axis : kAxes) {
    if (world.at().size(axis) > 1) bytes += world.comms()->get(axis)->memory_bytes();
  }
  return bytes;
}

std::string memory_text(const Session& session) {
  const ArenaSizes& sizes = session.step().sizes;
  if (session.shares_memory()) return fmt::format("{} planned", format_bytes(total_bytes(sizes)));
  return fmt::format("{} planned on the GPU, {} for driver and libraries", format_bytes(device_bytes(sizes)),
                     format_bytes(session.library_bytes()));
}

struct Flags {
  ConfigFlags config;
  int64_t steps = 10;
  int64_t warmup = 2;
  int64_t generate = 0;
  bool json = false;
};

struct Bench {
  const Flags& flags;
  const Config& config;
  const Backend& backend;
  const BuildModel& model;
  double start_s;  // of the process
};

// One rank's part. Rank 0 tells, or with --json every rank.
ExitCode run_bench(const Bench& bench, const World& world) {
  const Config& config = bench.config;
  RunSession run(config, bench.backend, bench.model, world);
  run.session().initialize(static_cast<uint64_t>(config.train.seed));
  const int threads = run.session().pool().num_threads();
  const DType storage = precision_policy(config.precision).storage;
  std::vector<double> seconds, peaks;
  double first_s = 0, overhead_s = 0, loss = 0;
  int64_t targets = 0;
  nlohmann::json sent_before;
  for (int64_t i = 0; i < bench.flags.warmup + bench.flags.steps; ++i) {
    if (i + 1 == bench.flags.warmup + bench.flags.steps) sent_before = counted_sent(world);
    world.barrier("benchmark");  // rank 0 has measured the peak meanwhile
    const double start = steady_s();
    const StepResult result = run.runner().run(i + 1);
    const double spent = steady_s() - start;
    if (i == 0) {
      first_s = steady_s() - bench.start_s;
      overhead_s = first_s - spent;
    }
    if (i < bench.flags.warmup) continue;
    seconds.push_back(spent);
    targets = result.targets;
    loss = result.loss;
    // The peak of a CPU drifts with the machine. A GPU's is measured at the end: between steps it would
    // only heat it.
    const bool at_end = !run.session().shares_memory();
    const bool last = i + 1 == bench.flags.warmup + bench.flags.steps;
    if (world.leads() && (at_end ? last : peaks.size() < 5))
      peaks.push_back(bench.backend.peak_flops(storage, threads));
  }
  nlohmann::json sent = counted_sent(world);
  for (const auto& [axis, before] : sent_before.items())
    sent[axis] = sent[axis].get<int64_t>() - before.get<int64_t>();
  world.barrier("end of the benchmark");
  if (!world.leads() && !bench.flags.json) return ExitCode::Done;
  const double step_s = median(seconds);
  const double peak =
      peaks.empty() ? 0 : world.size() * *std::max_element(peaks.begin(), peaks.end());  // of all ranks
  const double flops = static_cast<double>(run.session().step().model_flops) *
                       static_cast<double>(passes_per_step(config) * config.parallel.data);
  nlohmann::json planned, allocated;
  for (int i = 0; i < kNumArenas; ++i) {
    const auto arena = static_cast<Arena>(i);
    planned[std::string(arena_name(arena))] = run.session().step().sizes[static_cast<size_t>(i)];
    allocated[std::string(arena_name(arena))] = run.session().allocated_bytes(arena);
  }
  const nlohmann::json row = {
      {"workload", config.name},
      {"rank", world.at().rank()},
      {"world_size", world.size()},
      {"strategy", name_of(config.parallel.strategy)},
      {"planned_sent", planned_sent(run.session().step(), passes_per_step(config))},
      {"sent", sent},
      {"communicator_bytes", communicator_bytes(world)},
      {"precision", name_of(config.precision)},
      {"threads", threads},
      {"isa", bench.backend.description},
      {std::string(rate_key(unit_of(config.model))), static_cast<double>(targets) / step_s},
      {"step_ms", step_s * 1e3},
      {"fastest_ms", *std::min_element(seconds.begin(), seconds.end()) * 1e3},
      {"model_gflops", flops / step_s / 1e9},
      {"peak_gflops", peak / 1e9},
      {"fraction_of_peak", peak > 0 ? flops / step_s / peak : 0.0},
      {"first_step_s", first_s},
      {"start_overhead_s", overhead_s},
      {"loss", loss},
      {"planned_bytes", total_bytes(run.session().step().sizes)},
      {"planned", planned},
      {"allocated", allocated},
      {"library_bytes", run.session().library_bytes()},
      {"idle_rss_bytes", run.idle_rss_bytes()},
      {"peak_rss_bytes", peak_rss_bytes()},
      {"hardware", hardware_description()}};
  if (bench.flags.json) {
    std::printf("%s\n", row.dump().c_str());
    return ExitCode::Done;
  }
  std::printf(
      "%s\n",
      fmt::format("{}: {} {}/s, {:.1f} ms a step (median of {}), {:.1f} of {:.1f} GFLOP/s = {:.3f} of peak, "
                  "start-up {:.2f} s, {}",
                  config.name, format_count(static_cast<double>(targets) / step_s),
                  unit_name(unit_of(config.model)), step_s * 1e3, seconds.size(), flops / step_s / 1e9,
                  peak / 1e9, flops / step_s / peak, overhead_s, memory_text(run.session()))
          .c_str());
  return ExitCode::Done;
}

// So many tokens of one text, greedily, by the model with random weights: after one token, which is the
// prompt.
ExitCode run_generate(const Bench& bench) {
  const Config& config = bench.config;
  if (!config.model.is_language_model())
    throw ConfigError("--generate: {} is not a language model, and writes no text", config.name);
  ThreadPool pool(thread_count(config));
  Session session(compile_text(config, bench.backend, bench.model, 1, bench.flags.generate + 1),
                  bench.backend, pool);
  session.initialize(static_cast<uint64_t>(config.train.seed));
  Text text(session, config, {0});
  for (int64_t i = 0; i <= bench.flags.generate; ++i) {
    const int32_t token = draw(text.logits(), {.temperature = 0}, 0);
    TANDEM_CHECK(token != kNoToken, "random weights give no numbers");
    text.add(token);
  }
  const TextRate rate = rate_of(text, session, bench.backend);
  if (!bench.flags.json) {
    std::printf("%s: %s\n", config.name.c_str(), rate.text().c_str());
    return ExitCode::Done;
  }
  nlohmann::json row = rate.json();
  row.update({{"workload", config.name},
              {"precision", name_of(config.precision)},
              {"threads", pool.num_threads()},
              {"tokens", bench.flags.generate},
              {"isa", bench.backend.description},
              {"hardware", hardware_description()}});
  std::printf("%s\n", row.dump().c_str());
  return ExitCode::Done;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* command = add_command(app, "bench", "measure full training steps against the machine's own peak",
                                  "tandem bench configs/cpu-gpt.yaml --steps 20 --json");
  auto flags = std::make_shared<Flags>();
  flags->config.add_to(*command);
  add_insecure(*command);
  command->add_option("--steps", flags->steps, "timed steps")
      ->check(whole_number(1))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--warmup", flags->warmup, "steps before them")
      ->check(whole_number(0))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--generate", flags->generate,
                   "time so many tokens of a text instead, against the speed of memory")
      ->check(whole_number(1))
      ->type_name("N");
  command->add_flag("--json", flags->json, "print one JSON object");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      const WorldInfo info = read_world();
      const Config config = flags->config.load_to_run(info);
      const Backend backend = make_backend(config, info);
      const Bench bench{*flags, config, backend, action.model, action.start_s};
      if (flags->generate > 0) return run_generate(bench);
      return run_in_world(config, info, [&](const World& world) { return run_bench(bench, world); });
    };
  });
}

}  // namespace tandem::cli
