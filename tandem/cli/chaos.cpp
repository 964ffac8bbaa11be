#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/chaos/trial.h"
#include "tandem/cli/command.h"

namespace tandem::cli {
namespace {

struct Flags {
  ConfigFlags config;
  std::string kinds;
  std::string directory;
  int64_t tries = 20;
  int64_t only = -1;
  int ranks = 0;
  uint64_t seed = 1;
  double timeout_s = 10;
  bool json = false;
};

chaos::Setup setup_of(const Flags& flags) {
  const ResolvedConfig resolved = flags.config.load(WorldInfo{});
  const Config& config = resolved.config;
  const MeshShape mesh{static_cast<int>(config.parallel.data), static_cast<int>(config.parallel.tensor),
                       static_cast<int>(config.parallel.pipeline)};
  const int needed = config.parallel.strategy == Strategy::Dp ? 1 : mesh.world();
  if (flags.ranks != 0 && flags.ranks != needed)
    throw ConfigError("--ranks {}: the config's mesh has {}; change parallel with --set", flags.ranks,
                      count_of(needed, "rank"));
  chaos::Setup setup;
  setup.program = own_program();
  setup.config.push_back(flags.config.file);
  for (const std::string& set : flags.config.sets) setup.config.insert(setup.config.end(), {"--set", set});
  setup.config.insert(setup.config.end(), {"--set", fmt::format("parallel.timeout={}", flags.timeout_s)});
  if (!flags.config.device.empty())
    setup.config.insert(setup.config.end(), {"--device", flags.config.device});
  setup.num_ranks = needed;
  setup.directory = flags.directory.empty() ? std::filesystem::path("runs") / ("chaos-" + config.name)
                                            : std::filesystem::path(flags.directory);
  return setup;
}

std::string reproduction(const Flags& flags, int64_t number) {
  std::string text = fmt::format("tandem chaos {}", flags.config.file);
  for (const std::string& set : flags.config.sets) text += fmt::format(" --set {}", set);
  return text + fmt::format(" --kinds {} --seed {} --only {}", flags.kinds, flags.seed, number);
}

struct Count {
  int64_t tried = 0, survived = 0;
  double seconds = 0;
};

nlohmann::json to_json(const chaos::Outcome& outcome, int64_t number, const std::string& again) {
  nlohmann::json json = {{"trial", number},
                         {"kind", chaos::name_of(outcome.fault.kind)},
                         {"what", outcome.what},
                         {"survived", outcome.survived},
                         {"seconds", outcome.seconds}};
  if (!outcome.survived) json.update({{"wrong", outcome.wrong}, {"reproduce", again}});
  return json;
}

void print_table(const std::vector<chaos::Kind>& kinds, const std::map<chaos::Kind, Count>& counts,
                 double undisturbed_s) {
  std::printf("kind  tried  survived  seconds a run (undisturbed %.1f)\n", undisturbed_s);
  for (const chaos::Kind kind : kinds) {
    const auto found = counts.find(kind);
    if (found == counts.end()) continue;
    const Count& count = found->second;
    std::printf("%-5s %5lld  %8lld  %.1f\n", std::string(chaos::name_of(kind)).c_str(),
                static_cast<long long>(count.tried), static_cast<long long>(count.survived),
                count.seconds / static_cast<double>(count.tried));
  }
}

// Beside the program, as it is built and as it is installed.
std::filesystem::path fault_library() {
  const std::filesystem::path path =
      std::filesystem::path(own_program()).parent_path() / "../lib/tandem/libtandem_faults.so";
  if (!std::filesystem::exists(path))
    throw ConfigError("--kinds: disk and net need {}, which is built and installed with the program",
                      path.lexically_normal().string());
  return path.lexically_normal();
}

ExitCode run_chaos(const Flags& given) {
  Flags flags = given;
  chaos::Setup setup = setup_of(flags);
  if (flags.kinds.empty())
    flags.kinds = setup.num_ranks > 1 ? "kill,stop,term,flip,disk,net" : "kill,stop,term,flip,disk";
  const std::vector<chaos::Kind> kinds = chaos::parse_kinds(flags.kinds);
  const auto wants = [&](chaos::Kind kind) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  if (wants(chaos::Kind::Net) && setup.num_ranks == 1)
    throw ConfigError("--kinds net: one rank sends nothing; give the config a mesh of several");
  if (wants(chaos::Kind::Disk) || wants(chaos::Kind::Net)) setup.library = fault_library();
  const auto tell = [&](const std::string& line) {
    std::FILE* out = flags.json ? stderr : stdout;
    std::fprintf(out, "%s\n", line.c_str());
    std::fflush(out);
  };
  tell(fmt::format("trains undisturbed on {}, in {}", count_of(setup.num_ranks, "rank"),
                   setup.directory.string()));
  const double undisturbed_s = chaos::run_undisturbed(setup);
  tell(fmt::format("undisturbed: {:.1f} s", undisturbed_s));
  std::map<chaos::Kind, Count> counts;
  nlohmann::json trials = nlohmann::json::array();
  int64_t lost = 0;
  const int64_t first = flags.only >= 0 ? flags.only : 0,
                end = flags.only >= 0 ? flags.only + 1 : flags.tries;
  for (int64_t number = first; number < end; ++number) {
    const chaos::Fault fault = chaos::choose_fault(flags.seed, number, kinds, setup.num_ranks);
    const chaos::Outcome outcome = chaos::run_trial(setup, fault, number, undisturbed_s);
    Count& count = counts[fault.kind];
    ++count.tried;
    count.survived += outcome.survived ? 1 : 0;
    count.seconds += outcome.seconds;
    const std::string again = reproduction(flags, number);
    trials.push_back(to_json(outcome, number, again));
    tell(fmt::format("{} of {}: {}: {}", number + 1, end, outcome.what,
                     outcome.survived ? "survived, equal bit for bit" : "NOT SURVIVED: " + outcome.wrong));
    if (outcome.survived) continue;
    ++lost;
    tell(fmt::format("  what is left of it: {}\n  again: {}", chaos::trial_directory(setup, number).string(),
                     again));
  }
  if (flags.json) {
    std::printf(
        "%s\n",
        nlohmann::json{{"undisturbed_s", undisturbed_s}, {"ranks", setup.num_ranks}, {"trials", trials}}
            .dump(1)
            .c_str());
  } else {
    print_table(kinds, counts, undisturbed_s);
  }
  if (lost == 0) std::filesystem::remove_all(setup.directory);
  return lost == 0 ? ExitCode::Done : ExitCode::Failed;
}

}  // namespace

void add_chaos(CLI::App& app, Action& action) {
  CLI::App* command = add_command(
      app, "chaos",
      "kill, stop and damage runs of a config at random moments, and see whether each ends as if nothing had "
      "been",
      "tandem chaos configs/quickstart.yaml --set train.steps=60 --set checkpoint.every=10 --tries 8");
  auto flags = std::make_shared<Flags>();
  flags->config.add_to(*command);
  command
      ->add_option("--kinds", flags->kinds,
                   "what is done: kill (a rank), stop (a rank), term (the launcher), flip (a bit of the "
                   "newest checkpoint, all processes killed), disk (a call for the run's files fails, or the "
                   "disk is full or dead from then on), net (a connection is cut, slow or held up); all of "
                   "them if not given, net where there are several ranks")
      ->type_name("LIST");
  command->add_option("--tries", flags->tries, "runs to disturb")
      ->type_name("N")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--ranks", flags->ranks, "as the config's mesh has, which is also the default")
      ->type_name("N")
      ->check(whole_number(1, kMostJobs));
  command->add_option("--seed", flags->seed, "of the moments and ranks")
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--only", flags->only, "this trial alone, as an earlier call numbered it")
      ->type_name("N")
      ->check(whole_number(0));
  command
      ->add_option("--timeout", flags->timeout_s, "seconds that ranks wait for each other (parallel.timeout)")
      ->type_name("S")
      ->check(number(1))
      ->capture_default_str();
  command
      ->add_option("--dir", flags->directory,
                   "where the runs are; runs/chaos-NAME if not given; goes when all survive")
      ->type_name("DIR");
  command->add_flag("--json", flags->json, "every trial as JSON");
  command->callback([flags, &action] { action.run = [flags] { return run_chaos(*flags); }; });
}

}  // namespace tandem::cli
