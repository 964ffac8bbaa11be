#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/nearest.h"
#include "tandem/base/units.h"
#include "tandem/cli/command.h"
#include "tandem/compile/recompute.h"
#include "tandem/ir/text.h"
#include "tandem/train/compile_config.h"

namespace tandem::cli {
namespace {

constexpr std::string_view kDumpPrefix = "after:";

void check_dump(const std::string& dump) {
  const std::string_view pass =
      dump.starts_with(kDumpPrefix) ? std::string_view(dump).substr(kDumpPrefix.size()) : dump;
  for (std::string_view name : kPassNames) {
    if (name == pass && dump.starts_with(kDumpPrefix)) return;
  }
  throw ConfigError("--dump {}: expected after:PASS with a pass of {}; the nearest is after:{}", dump,
                    fmt::join(kPassNames, ", "), nearest(pass, kPassNames));
}

void print_table(const Config& config, const CompiledStep& step, const std::map<std::string, double>& times) {
  std::printf("%s\n", fmt::format("{} parameters, {} threads, recompute {}",
                                  format_count(static_cast<double>(step.num_params)), thread_count(config),
                                  recompute_name(step.recompute))
                          .c_str());
  std::printf("\n  %-14s %16s\n", "memory", "bytes");
  for (int i = 0; i < kNumArenas; ++i) {
    const int64_t bytes = step.sizes[static_cast<size_t>(i)];
    std::printf("%s\n", fmt::format("  {:<14} {:>16}  {}", arena_name(static_cast<Arena>(i)), bytes,
                                    format_bytes(bytes))
                            .c_str());
  }
  const int64_t total = total_bytes(step.sizes);
  std::printf("%s\n", fmt::format("  {:<14} {:>16}  {}", "total", total, format_bytes(total)).c_str());

  const auto passes = static_cast<double>(config.accumulation());
  std::printf("%s\n", fmt::format("\n  {:<14} {:>16}  ({} passes of {} and one update)", "model FLOPs",
                                  format_count(static_cast<double>(step.model_flops) * passes),
                                  config.accumulation(), config.train.micro_batch)
                          .c_str());
  std::printf("%s\n",
              fmt::format("  {:<14} {:>16}  pass {}, update {}, eval {}", "commands",
                          step.pass.commands.size() + step.update.commands.size() + step.eval.commands.size(),
                          step.pass.commands.size(), step.update.commands.size(), step.eval.commands.size())
                  .c_str());
  double total_ms = 0;
  std::string detail;
  for (std::string_view name : kPassNames) {
    const auto it = times.find(std::string(name));
    if (it == times.end()) continue;
    total_ms += it->second;
    detail += fmt::format("{}{} {:.1f}", detail.empty() ? "" : ", ", name, it->second);
  }
  std::printf("%s\n", fmt::format("  {:<14} {:>13.1f} ms  {}", "compiled in", total_ms, detail).c_str());
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  struct Flags {
    ConfigFlags config;
    std::string dump;
    bool json = false;
    bool commands = false;
  };
  CLI::App* command =
      add_command(app, "plan", "compile a config's step and show its exact memory, FLOPs and commands",
                  "tandem plan configs/cpu-gpt.yaml --set memory.recompute=full");
  auto flags = std::make_shared<Flags>();
  flags->config.add_to(*command);
  command->add_flag("--json", flags->json, "print the whole plan, every command and slice, as JSON");
  command->add_flag("--commands", flags->commands, "list the commands of the compiled step");
  command
      ->add_option("--dump", flags->dump,
                   "print the graph after a pass: after:model, after:precision, after:differentiate, "
                   "after:recompute, after:fuse, after:schedule")
      ->type_name("after:PASS");
  command->callback([flags, &action] {
    action.run = [flags] {
      if (!flags->dump.empty()) check_dump(flags->dump);
      const Config config = flags->config.load().config;
      const Backend backend = make_backend(config);
      CompileOptions options = compile_options(config, backend);
      std::map<std::string, double> times;
      std::string dumped;
      options.observe = [&](std::string_view pass, const Graph& graph, double ms) {
        times[std::string(pass)] += ms;
        if (flags->dump == std::string(kDumpPrefix) + std::string(pass)) dumped = print(graph);
      };
      const CompiledStep step = compile_config(config, options);
      if (!flags->dump.empty()) {
        std::printf("%s", dumped.c_str());
      } else if (flags->json) {
        std::printf("%s\n", to_json(step).dump(1).c_str());
      } else if (flags->commands) {
        std::printf("%s%s%s", print(step.pass).c_str(), print(step.update).c_str(), print(step.eval).c_str());
      } else {
        print_table(config, step, times);
      }
      require_fit(config, backend, step);
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
