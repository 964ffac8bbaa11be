#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tandem/base/nearest.h"
#include "tandem/base/quantity.h"
#include "tandem/cli/command.h"
#include "tandem/cli/plan_cluster.h"
#include "tandem/cli/plan_search.h"
#include "tandem/compile/pass_list.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/config/enum_names.h"
#include "tandem/config/mesh.h"
#include "tandem/ir/text.h"
#include "tandem/train/compile_config.h"
#include "tandem/train/fit.h"

namespace tandem::cli {
namespace {

constexpr std::string_view kDumpPrefix = "after:";

void print_line(const std::string& line) { std::printf("%s\n", line.c_str()); }

void check_dump(const std::string& dump) {
  const std::string_view pass =
      dump.starts_with(kDumpPrefix) ? std::string_view(dump).substr(kDumpPrefix.size()) : dump;
  const std::vector<std::string> passes = pass_names();
  const std::vector<std::string_view> names(passes.begin(), passes.end());
  for (std::string_view name : names) {
    if (name == pass && dump.starts_with(kDumpPrefix)) return;
  }
  throw ConfigError("--dump {}: expected after:PASS with a pass of {}; the nearest is after:{}", dump,
                    fmt::join(names, ", "), nearest(pass, names));
}

void check_without(const std::vector<std::string>& without) {
  const std::vector<std::string_view> names = optional_passes();
  for (const std::string& pass : without) {
    if (std::find(names.begin(), names.end(), pass) == names.end())
      throw ConfigError("--without {}: expected a pass without which a step is still right: one of {}", pass,
                        fmt::join(names, ", "));
  }
}

// The passes in order, then evaluation's together.
void print_times(const std::map<std::string, double>& times) {
  double total_ms = 0, eval_ms = 0;
  std::string detail;
  const auto add = [&](std::string_view name, double ms) {
    detail += fmt::format("{}{} {:.1f}", detail.empty() ? "" : ", ", name, ms);
  };
  for (const std::string& name : pass_names()) {
    const auto it = times.find(name);
    if (it == times.end()) continue;
    total_ms += it->second;
    if (name.starts_with(kEvalPrefix)) {
      eval_ms += it->second;
    } else {
      add(name, it->second);
    }
  }
  add("eval", eval_ms);
  print_line(fmt::format("  {:<14} {:>13.1f} ms  {}", "compiled in", total_ms, detail));
}

void print_memory(const std::vector<CompiledStep>& ranks, bool on_device) {
  std::string head = fmt::format("\n  {:<14}", "memory, bytes");
  for (const CompiledStep& step : ranks)
    head += fmt::format(" {:>16}", ranks.size() == 1 ? "" : fmt::format("rank {}", step.position.rank()));
  print_line(head);
  const auto row = [&](std::string_view name, const auto& bytes_of, const std::string& note = {}) {
    std::string line = fmt::format("  {:<14}", name);
    for (const CompiledStep& step : ranks) line += fmt::format(" {:>16}", bytes_of(step));
    if (ranks.size() == 1) line += "  " + format_bytes(bytes_of(ranks[0]));
    print_line(line + note);
  };
  const int64_t inside = gradients_in_activations(ranks[0]);
  for (int i = 0; i < kNumArenas; ++i) {
    const auto arena = static_cast<Arena>(i);
    if (arena == Arena::Cache) continue;  // of generation, which is planned by itself
    const bool noted = arena == Arena::Activations && inside > 0;
    row(
        arena_name(arena), [&](const CompiledStep& step) { return step.sizes[static_cast<size_t>(i)]; },
        noted ? fmt::format(", {} of gradients among them", format_bytes(inside)) : "");
  }
  row("total", [](const CompiledStep& step) { return total_bytes(step.sizes); });
  if (on_device) row("on the device", [](const CompiledStep& step) { return device_bytes(step.sizes); });
}

void print_communication(const Config& config, const std::vector<CompiledStep>& ranks) {
  if (ranks[0].position.shape.world() == 1) return;
  print_line("\n  sent in a step, bytes");
  for (Axis axis : kAxes) {
    if (ranks[0].position.size(axis) == 1) continue;
    std::string line = fmt::format("  {:<14}", axis_name(axis));
    for (const CompiledStep& step : ranks)
      line += fmt::format(" {:>16}", sent_per_step(step, axis, passes_per_step(config)));
    print_line(line);
  }
}

void print_table(const Config& config, const Backend& backend, const std::vector<CompiledStep>& ranks,
                 const std::map<std::string, double>& times, int threads) {
  const CompiledStep& step = ranks[0];
  const MeshShape& mesh = step.position.shape;
  print_line(fmt::format("{} parameters, {}, recompute {}, for {}",
                         format_count(static_cast<double>(step.num_params)), count_of(threads, "thread"),
                         recompute_name(step.recompute), backend.description));
  if (config.precision == Precision::Fp8)
    print_line(fmt::format("{} matrices in 8 bits", matrices_in_fp8(step)));
  if (mesh.world() > 1) {
    print_line(
        fmt::format("{} ranks: data {} ({}) x tensor {} x pipeline {}; ranks not shown are like one of these",
                    mesh.world(), mesh.data, name_of(config.parallel.strategy), mesh.tensor, mesh.pipeline));
  }
  print_memory(ranks, static_cast<bool>(backend.memory_bytes));
  print_communication(config, ranks);
  const auto passes = static_cast<double>(passes_per_step(config) * mesh.data);
  print_line(fmt::format("\n  {:<14} {:>16}  ({} of {} on each of {}, and one update)", "model FLOPs",
                         format_count(static_cast<double>(step.model_flops) * passes),
                         count_of(passes_per_step(config), "pass"), config.train.micro_batch,
                         count_of(mesh.data, "data rank")));
  print_line(fmt::format("  {:<14} {:>16}  pass {}, update {}, eval {}", "commands",
                         step.pass.commands.size() + step.update.commands.size() + step.eval.commands.size(),
                         step.pass.commands.size(), step.update.commands.size(), step.eval.commands.size()));
  print_times(times);
}

// All of them, or, of a large mesh, one of each kind.
std::vector<MeshPosition> ranks_to_show(const MeshShape& mesh) {
  constexpr int kAll = 64;
  if (mesh.world() > kAll) return rank_kinds(mesh);
  std::vector<MeshPosition> ranks;
  for (int rank = 0; rank < mesh.world(); ++rank) ranks.push_back(MeshPosition::of(mesh, rank));
  return ranks;
}

// Ranks of one size and traffic are shown once.
bool looks_like(const CompiledStep& a, const CompiledStep& b) {
  if (a.sizes != b.sizes) return false;
  for (Axis axis : kAxes) {
    for (auto part : {&CompiledStep::pass, &CompiledStep::last_pass, &CompiledStep::update}) {
      if (sent_bytes(a.*part, axis) != sent_bytes(b.*part, axis)) return false;
    }
  }
  return true;
}

nlohmann::json rank_json(const Config& config, const CompiledStep& step) {
  nlohmann::json planned, sent = nlohmann::json::object();
  for (int i = 0; i < kNumArenas; ++i)
    planned[std::string(arena_name(static_cast<Arena>(i)))] = step.sizes[static_cast<size_t>(i)];
  for (Axis axis : kAxes) {
    if (step.position.size(axis) > 1)
      sent[std::string(axis_name(axis))] = sent_per_step(step, axis, passes_per_step(config));
  }
  return {{"rank", step.position.rank()},   {"data", step.position.data},
          {"tensor", step.position.tensor}, {"pipeline", step.position.pipeline},
          {"planned_bytes", planned},       {"planned_total", total_bytes(step.sizes)},
          {"sent_bytes_per_step", sent}};
}

// On a terminal, and after a moment, says what takes so long; its line is gone when there is something to
// show.
class Waiting {
 public:
  explicit Waiting(std::string what) : what_(std::move(what)) {}
  ~Waiting() {
    if (shown_) std::fprintf(stderr, "\r\x1b[K");
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  void show() {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(500);
    shown_ = true;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    std::fprintf(stderr, "\r\x1b[K%s, %.0f s", what_.c_str(), seconds);
  }

 private:
  const std::string what_;
  const bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point next_ = start_ + std::chrono::milliseconds(300);
  bool shown_ = false;
};

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  struct Flags {
    ConfigFlags config;
    ClusterFlags cluster;
    std::string dump;
    std::vector<std::string> without;
    bool json = false;
    bool commands = false;
  };
  CLI::App* command =
      add_command(app, "plan", "compile a config's step and show its exact memory, FLOPs and commands",
                  "tandem plan configs/cpu-gpt.yaml --set memory.recompute=full\n"
                  "tandem plan configs/llama-8b.yaml --search --cluster h100-sxm:8 --set train.batch=64 "
                  "--tokens 1T --out best.yaml");
  auto flags = std::make_shared<Flags>();
  flags->config.add_to(*command);
  flags->cluster.add_to(*command);
  command->add_flag("--json", flags->json, "print the whole plan, every command and slice, as JSON");
  command->add_flag("--commands", flags->commands, "list the commands of the compiled step");
  command
      ->add_option("--dump", flags->dump,
                   fmt::format("print the graph after a pass: {}", fmt::join(pass_names(), ", ")))
      ->type_name("after:PASS");
  command
      ->add_option(
          "--without", flags->without,
          fmt::format("leave out a pass of {} (may be repeated)", fmt::join(optional_passes(), ", ")))
      ->type_name("PASS")
      ->expected(1)
      ->take_all();
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      if (!flags->dump.empty()) check_dump(flags->dump);
      check_without(flags->without);
      if (flags->cluster.search) return plan_search(flags->cluster, flags->config, flags->json, action);
      if (flags->cluster.is_set()) return plan_on_cluster(flags->cluster, flags->config, flags->json, action);
      const WorldInfo world = read_world();
      const Config config = flags->config.load(world).config;
      const Backend backend = make_backend(config, world);
      std::map<std::string, double> times;
      std::string dumped;
      std::vector<CompiledStep> shown;  // of ranks that are alike, the first
      nlohmann::json ranks = nlohmann::json::array();
      const MeshShape mesh = mesh_shape(config);
      // As if the ranks were started here, as far as the cores go.
      const int ranks_here = std::min(mesh.world(), num_cores());
      std::optional<Waiting> waiting(std::in_place, "compiling");
      for (const MeshPosition& at : ranks_to_show(mesh)) {
        CompileOptions options = compile_options(config, backend, at, ranks_here);
        options.without = flags->without;
        options.observe = [&](std::string_view pass, const Graph& graph, double ms) {
          if (!shown.empty()) return;  // times and graphs are rank 0's
          times[std::string(pass)] += ms;
          if (flags->dump == std::string(kDumpPrefix) + std::string(pass)) dumped += print(graph);
        };
        options.while_compiling = [&waiting] { waiting->show(); };
        CompiledStep compiled = compile_config(config, options, action.model);
        ranks.push_back(rank_json(config, compiled));
        const auto same = [&](const CompiledStep& step) { return looks_like(step, compiled); };
        if (std::none_of(shown.begin(), shown.end(), same)) shown.push_back(std::move(compiled));
      }
      waiting.reset();
      const CompiledStep& step = shown.front();
      if (!flags->dump.empty()) {
        std::printf("%s", dumped.c_str());
      } else if (flags->json) {
        nlohmann::json json = to_json(step);
        if (step.position.shape.world() > 1) json["ranks"] = ranks;
        std::printf("%s\n", json.dump(1).c_str());
      } else if (flags->commands) {
        for (const Executable* part :
             {&step.pass, &step.last_pass, &step.update, &step.eval, &step.gather, &step.exchange}) {
          if (!part->commands.empty()) std::printf("%s", print(*part).c_str());
        }
      } else {
        print_table(config, backend, shown, times, thread_count(config, ranks_here));
      }
      std::fflush(stdout);
      Waiting searching("does not fit; looking for the cheapest change that does");
      for (const CompiledStep& rank : shown)
        require_fit(config, backend, rank, action.model, ranks_here, [&searching] { searching.show(); });
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
