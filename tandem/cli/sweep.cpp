// tandem sweep: many runs of one config, the losers stopped early.
#include <cstdio>
#include <memory>
#include <thread>

#include "tandem/base/file.h"
#include "tandem/cli/command.h"
#include "tandem/config/place.h"
#include "tandem/config/print.h"
#include "tandem/pipeline/sweep.h"

namespace tandem::cli {
namespace {

struct SweepFlags {
  ConfigFlags config;
  std::vector<std::string> grid;
  std::string dir;
  int64_t trials = 0, halving = 2, seed = 0;
  int jobs = 1;
  bool json = false;
};

// Every trial's config, checked before any of them runs.
std::vector<ResolvedConfig> load_trials(const SweepFlags& flags, pipeline::Sweep& sweep) {
  std::vector<pipeline::Axis> axes;
  for (const std::string& text : flags.grid) axes.push_back(pipeline::parse_axis(text));
  std::vector<ResolvedConfig> configs;
  for (std::vector<std::string>& sets :
       pipeline::combinations(axes, flags.trials, static_cast<uint64_t>(flags.seed))) {
    ConfigFlags each = flags.config;
    each.sets.insert(each.sets.end(), sets.begin(), sets.end());
    configs.push_back(each.load(read_world()));
    sweep.trials.push_back({std::move(sets), configs.back().config.train.steps});
  }
  return configs;
}

// What all trials have in common. Side by side they share the cores, which changes no bit.
std::vector<std::string> common_words(const SweepFlags& flags, const ResolvedConfig& config) {
  std::vector<std::string> words = {"train", flags.config.file};
  for (const std::string& set : flags.config.sets) words.insert(words.end(), {"--set", set});
  if (!flags.config.device.empty()) words.insert(words.end(), {"--device", flags.config.device});
  if (flags.jobs > 1 && !was_given(config, "threads")) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    words.insert(words.end(), {"--set", fmt::format("threads={}", std::max(1, cores / flags.jobs))});
  }
  return words;
}

std::string identity_of(const SweepFlags& flags) {
  std::string text = fmt::format("halving {}, trials {}, seed {}, device {}\n", flags.halving, flags.trials,
                                 flags.seed, flags.config.device);
  for (const std::string& set : flags.config.sets) text += fmt::format("--set {}\n", set);
  for (const std::string& axis : flags.grid) text += fmt::format("--grid {}\n", axis);
  return text + read_text(flags.config.file);
}

ExitCode sweep_config(const SweepFlags& flags) {
  if (flags.halving == 1)
    throw ConfigError("--halving 1: expected 0 (nobody is stopped) or at least 2, found 1: all would go on");
  pipeline::Sweep sweep;
  const std::vector<ResolvedConfig> configs = load_trials(flags, sweep);
  sweep.folder = flags.dir.empty() ? "sweeps/" + configs.front().config.name : flags.dir;
  sweep.command = common_words(flags, configs.front());
  sweep.identity = identity_of(flags);
  sweep.factor = flags.halving;
  sweep.jobs = flags.jobs;
  const pipeline::SweepResult result = pipeline::run_sweep(sweep);
  const size_t best = result.ranking.front();
  const std::string json = pipeline::sweep_json(sweep, result);
  write_atomically(sweep.folder / "results.json", json);
  write_atomically(sweep.folder / "sweep.svg", pipeline::sweep_svg(sweep, result));
  write_atomically(sweep.folder / "best.yaml", to_yaml(configs[best].config));
  std::printf("%s", flags.json ? json.c_str() : pipeline::sweep_table(sweep, result).c_str());
  std::fprintf(stderr, "the best is %s; its config: %s, all curves: %s\n", sweep.run_of(best).c_str(),
               (sweep.folder / "best.yaml").c_str(), (sweep.folder / "sweep.svg").c_str());
  return ExitCode::Done;
}

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  CLI::App* command =
      add_command(app, "sweep", "many runs of one config with other values, the losers stopped early",
                  "tandem sweep configs/quickstart.yaml --grid train.lr=1e-3,6e-3 --set train.steps=8 "
                  "--set train.warmup=2 --set model.context=32");
  auto flags = std::make_shared<SweepFlags>();
  flags->config.add_to(*command);
  command->add_option("--grid", flags->grid, "a key and its values (may be repeated: every combination)")
      ->type_name("KEY=A,B")
      ->expected(1)
      ->take_all()
      ->required();
  command->add_option("--trials", flags->trials, "that many combinations, by lot; all if not given")
      ->check(whole_number(1))
      ->type_name("N");
  command->add_option("--seed", flags->seed, "of that lot")->check(whole_number(0))->type_name("N");
  command
      ->add_option("--halving", flags->halving,
                   "one of so many trials goes on each time they are compared, 2 if not given; 0: all do")
      ->check(whole_number(0))
      ->type_name("N");
  command->add_option("--jobs", flags->jobs, "trials at the same time, 1 if not given")
      ->check(whole_number(1, kMostJobs))
      ->type_name("N");
  command
      ->add_option("--dir", flags->dir,
                   "where trials and results lie; sweeps/<the config's name> if not given")
      ->type_name("DIR");
  command->add_flag("--json", flags->json, "print the results as JSON");
  command->callback([flags, &action] { action.run = [flags] { return sweep_config(*flags); }; });
}

}  // namespace tandem::cli
