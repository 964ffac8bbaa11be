// What the subcommands share. Each subcommand is one file with one function that declares its flags and sets
// what runs when it is chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/comm/connect.h"
#include "tandem/config/load.h"
#include "tandem/models/model.h"
#include "tandem/runtime/backend.h"

namespace tandem::cli {

// Filled in by the chosen subcommand's callback; run_command_line runs it.
struct Action {
  std::function<ExitCode()> run;
  BuildModel model;                  // what this program trains
  double start_s = 0;                // of the process (base/clock.h)
  std::vector<std::string> program;  // of `tandem launch`
};

void add_train(CLI::App& app, Action& action);
void add_launch(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_profile(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_prepare(CLI::App& app, Action& action);
void add_evaluate(CLI::App& app, Action& action);
void add_sample(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_copy(CLI::App& app, Action& action);
void add_gc(CLI::App& app, Action& action);
void add_import(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_chaos(CLI::App& app, Action& action);
void add_dash(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_calibrate(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_status(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_submit(CLI::App& app, Action& action);
void add_logs(CLI::App& app, Action& action);
void add_cancel(CLI::App& app, Action& action);
void add_pipeline(CLI::App& app, Action& action);
void add_sweep(CLI::App& app, Action& action);

// Every word after launch's own flags belongs to the program it runs: keeps those words for it and returns
// how many of argc are left to parse.
int take_program(int argc, char** argv, Action& action);

// [--set key.path=value]...
void add_sets_to(CLI::App& command, std::vector<std::string>& sets, const std::string& what);
std::vector<Override> overrides_of(const std::vector<std::string>& sets);

// CONFIG [--set key.path=value]... [--device auto|cpu|cuda]
struct ConfigFlags {
  std::string file;
  std::vector<std::string> sets;
  std::string device;

  void add_to(CLI::App& command);
  // For this process among the ranks. `run_dir` is where the run is, runs/<name> if empty: it has a copy of
  // what model.from stood for. Rank 0 tells the notes.
  ResolvedConfig load(const WorldInfo& world, const std::string& run_dir = "") const;
  Config load_to_run(const WorldInfo& world, const std::string& run_dir = "") const;  // by these ranks
};

// A subcommand with an example at the end of its --help: a line, or several, that begin with "tandem", which
// becomes this program's name.
CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& what,
                      const std::string& example);

// --insecure, for commands that may be ranks without a launcher (comm/secret.h).
void add_insecure(CLI::App& command);

// Checks of a flag's number, whose message says what was expected and found.
CLI::Validator whole_number(int64_t at_least, int64_t at_most = std::numeric_limits<int64_t>::max());
inline constexpr int64_t kMostThreads = 4096;  // of a process, as the config's `threads`
inline constexpr int64_t kMostJobs = 4096;     // processes at the same time
inline constexpr int64_t kMostInt = std::numeric_limits<int>::max();
CLI::Validator number(double at_least);
CLI::Validator positive_fraction();  // above 0, at most 1

// The one place that names a concrete backend. Commands that are one process need not say who they are.
Backend make_backend(const Config& config, const WorldInfo& world = read_world());

}  // namespace tandem::cli
