#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include "tandem/base/system.h"
#include "tandem/cli/command.h"
#include "tandem/hub/fill_model.h"
#include "tandem/hub/kept_files.h"
#include "tandem/kernels/cuda/device/devices.h"
#include "tandem/launch/agent.h"

namespace tandem::cli {
namespace {

struct Flags {
  std::string ranks_per_node = "1";
  std::string nodes = "1";
  std::string backend = "static";
  std::string tee, redirects, local_ranks, out_filters, err_filters, signals, rendezvous_settings;
  std::string start_method = "spawn", event_log_handler = "null", logs_specs, numa_binding;
  bool module = false, no_python = false, run_path = false;
  LaunchOptions options;
};

// --nproc-per-node as an environment variable of torchrun's, PET_NPROC_PER_NODE.
std::string variable_of(const std::string& underscored) {
  std::string name = "PET_" + underscored;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

// The help has enough to say without every variable's name.
class HelpWithoutVariables : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = CLI::Formatter::make_option_opts(option);
    if (const size_t at = text.find(" (Env:"); at != std::string::npos)
      text.erase(at, text.find(')', at) + 1 - at);
    return text;
  }
};

std::string underscored_of(const std::string& names) {
  std::string name = names.substr(names.find("--") + 2);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// torchrun spells flags with underscores too; those are understood and not listed. `name` may have a short
// one before it: "-t,--tee".
template <typename Value>
CLI::Option* add_flag_with_value(CLI::App& command, const std::string& name, Value& value,
                                 const std::string& what, const std::string& type,
                                 const CLI::Validator& check = {}) {
  const std::string underscored = underscored_of(name);
  CLI::Option* option =
      command.add_option(name, value, what)->type_name(type)->check(check)->envname(variable_of(underscored));
  if (underscored.find('_') != std::string::npos)
    command.add_option("--" + underscored, value, what)->type_name(type)->check(check)->group("");
  return option;
}

void add_switch(CLI::App& command, const std::string& name, bool& value, const std::string& what) {
  const std::string underscored = underscored_of(name);
  command.add_flag(name, value, what)->envname(variable_of(underscored));
  if (underscored.find('_') != std::string::npos)
    command.add_flag("--" + underscored, value, what)->group("");
}

ProgramKind kind_of(const Flags& flags) {
  if (flags.run_path) return ProgramKind::RunPath;  // before --no-python, as in torchrun
  if (flags.module && flags.no_python)
    throw ConfigError("--module and --no-python contradict each other; leave one of them out");
  return flags.module ? ProgramKind::Module : flags.no_python ? ProgramKind::NoPython : ProgramKind::Any;
}

// What torchrun has for its own Python code. A value that would change something is refused.
void check_torchs_own(const Flags& flags) {
  constexpr std::array<std::string_view, 3> kMethods = {"spawn", "fork", "forkserver"};
  if (std::find(kMethods.begin(), kMethods.end(), flags.start_method) == kMethods.end())
    throw ConfigError(
        "--start-method: expected spawn, fork or forkserver, found '{}'; ranks are processes of their own "
        "with any of them",
        flags.start_method);
  if (flags.event_log_handler != "null")
    throw ConfigError(
        "--event-log-handler: expected null, found '{}'; handlers are Python code of torch's, and what "
        "happens "
        "to a run is in its events.jsonl",
        flags.event_log_handler);
  if (!flags.logs_specs.empty())
    throw ConfigError(
        "--logs-specs {}: is Python code of torch's, which is not there; use --log-dir, --tee and "
        "--redirects",
        flags.logs_specs);
  if (!flags.numa_binding.empty())
    throw ConfigError(
        "--numa-binding {}: is not there; bind each rank with numactl: tandem launch ... --no-python sh -c "
        "'exec numactl --cpunodebind=$((LOCAL_RANK % 2)) --localalloc PROGRAM'",
        flags.numa_binding);
}

// Empty: not given.
void take_torchruns_forms(Flags& flags) {
  LaunchOptions& options = flags.options;
  if (!flags.tee.empty()) options.tee = parse_streams(flags.tee, "--tee");
  if (!flags.redirects.empty()) options.redirects = parse_streams(flags.redirects, "--redirects");
  if (!flags.local_ranks.empty())
    options.shown_local_ranks = parse_local_ranks(flags.local_ranks, "--local-ranks-filter");
  if (!flags.signals.empty()) options.more_signals = parse_signals(flags.signals, "--signals-to-handle");
  options.out_filters = parse_words(flags.out_filters);
  options.err_filters = parse_words(flags.err_filters);
}

void take_rendezvous_settings(Flags& flags, Terminal& terminal) {
  const RendezvousSettings settings = parse_rendezvous_settings(flags.rendezvous_settings, "--rdzv-conf");
  if (settings.timeout_s) flags.options.rendezvous_timeout_s = *settings.timeout_s;
  if (settings.last_call_s) flags.options.last_call_s = *settings.last_call_s;
  for (const std::string& key : settings.without_meaning)
    terminal.message(fmt::format("--rdzv-conf: {} has no meaning here, and changes nothing", key));
}

// Ranks come and go in multiples of this where the config of `tandem train CONFIG` has parallel.elastic; 0
// where they do not. What is wrong with a config the ranks tell.
int elastic_unit(const LaunchOptions& options) {
  if (!options.is_tandem || options.program.size() < 3 || options.program[1] != "train") return 0;
  CLI::App app("", "tandem");
  CLI::App* command = app.add_subcommand("train");
  ConfigFlags flags;
  std::string run_dir;
  flags.add_to(*command);
  command->add_option("--run-dir", run_dir);
  command->allow_extras();
  std::vector<std::string> words(options.program.rbegin(),
                                 options.program.rend() - 1);  // parsed from the back
  try {
    app.parse(words);
    const auto fill = [&](ResolvedConfig& resolved) {
      const std::filesystem::path run = run_dir.empty() ? "runs/" + resolved.config.name : run_dir;
      hub::fill_model(resolved, run / hub::kKeptFolder);
    };
    const Config config = load_config(flags.file, overrides_of(flags.sets), 1, fill).config;
    if (config.parallel.elastic != Elastic::Data) return 0;
    return static_cast<int>(config.parallel.tensor * config.parallel.pipeline);
  } catch (const CLI::ParseError&) {
  } catch (const Error&) {
  }
  return 0;
}

ExitCode launch(const CLI::App& app, Flags& flags, const std::vector<std::string>& program) {
  LaunchOptions& options = flags.options;
  Terminal terminal;
  check_torchs_own(flags);
  std::vector<std::string> subcommands;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    subcommands.push_back(sub->get_name());
  const char* python = std::getenv("PYTHON_EXEC");
  options.program = complete_program(program, kind_of(flags), own_program(), subcommands,
                                     python != nullptr && *python != '\0' ? python : "python3");
  options.is_tandem = !options.program.empty() && options.program.front() == own_program();
  options.nodes = parse_nodes(flags.nodes);
  options.backend = parse_backend(flags.backend);
  take_torchruns_forms(flags);
  take_rendezvous_settings(flags, terminal);
  options.ranks_per_node =
      parse_ranks_per_node(flags.ranks_per_node, [] { return static_cast<int>(cuda::devices().size()); });
  options.rank_unit = elastic_unit(options);
  return static_cast<ExitCode>(run_launch(options, terminal));
}

void add_output_flags(CLI::App& command, Flags& flags) {
  add_flag_with_value(command, "--log-dir", flags.options.log_dir,
                      "keep each rank's output in DIR/rank-<n>.log; if not given, only after a failure",
                      "DIR");
  add_flag_with_value(
      command, "-t,--tee", flags.tee,
      "show 1 (stdout), 2 (stderr), 3 (both) or 0 (nothing) of every rank, each line with its "
      "rank, or of some: 0:3,1:1 (local ranks); if not given, rank 0 alone, as it is",
      "N");
  add_flag_with_value(
      command, "-r,--redirects", flags.redirects,
      "do not show 1 (stdout), 2 (stderr) or 3 (both): of all ranks, or of some as with --tee", "N");
  add_flag_with_value(command, "--local-ranks-filter", flags.local_ranks, "show these local ranks alone",
                      "0,1,...");
  add_flag_with_value(
      command, "--log-line-prefix-template", flags.options.prefix_template,
      "in front of lines in place of '[rank N] '; ${role_name}, ${rank}, ${local_rank}, ${hostname}", "TEXT")
      ->envname("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  add_flag_with_value(command, "--duplicate-stdout-filters", flags.out_filters,
                      "lines with one of these words once more in filtered_stdout.log beside the logs",
                      "A,B,...");
  add_flag_with_value(command, "--duplicate-stderr-filters", flags.err_filters, "the same for stderr",
                      "A,B,...");
}

void add_idle_flags(CLI::App& command, Flags& flags) {
  const std::string no_use = "Flags of torchrun's that have no use here";
  add_flag_with_value(command, "--start-method", flags.start_method,
                      "spawn, fork or forkserver: all the same here", "NAME")
      ->group(no_use);
  add_flag_with_value(command, "--event-log-handler", flags.event_log_handler, "null, or refused", "NAME")
      ->group(no_use);
  add_flag_with_value(command, "--logs-specs", flags.logs_specs, "refused", "NAME")->group(no_use);
  add_flag_with_value(command, "--numa-binding", flags.numa_binding, "refused: use numactl", "NAME")
      ->group(no_use);
}

}  // namespace

int take_program(int argc, char** argv, Action& action) {
  if (argc < 2 || std::string_view(argv[1]) != "launch") return argc;
  const std::vector<std::string> words(argv + 2, argv + argc);
  const size_t start = find_program(words);
  action.program.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(start, words.size())),
                        words.end());
  const bool dashes = start > 0 && start <= words.size() && words[start - 1] == "--";
  return 2 + static_cast<int>(start) - (dashes ? 1 : 0);
}

void add_launch(CLI::App& app, Action& action) {
  CLI::App* command =
      add_command(app, "launch", "run a program as many ranks, on one node or several, as torchrun does",
                  "tandem launch --nproc-per-node 2 train configs/fsdp_2gpu.yaml\n"
                  "  tandem launch --nproc-per-node 4 --max-restarts 3 --tee 3 -- python3 script.py\n"
                  "  tandem launch --nnodes 2 --nproc-per-node 8 --rdzv-endpoint node-a:29400 "
                  "--rdzv-secret-file FILE train "
                  "CONFIG   (on each node)");
  command
      ->add_option(
          "PROGRAM", action.program,
          "what each rank runs, with its arguments: a subcommand of tandem such as train, a Python file, or "
          "any program, before which -- may stand")
      ->type_name("");
  command->formatter(std::make_shared<HelpWithoutVariables>());
  auto flags = std::make_shared<Flags>();
  LaunchOptions& options = flags->options;
  add_flag_with_value(
      *command, "--nproc-per-node", flags->ranks_per_node,
      "ranks on this node: a number, auto (GPUs, else cores), gpu or cpu (cores); 1 if not given", "N");
  add_flag_with_value(*command, "--nnodes", flags->nodes, "nodes; MIN:MAX starts with whoever has come", "N");
  add_flag_with_value(*command, "--node-rank", options.node_rank,
                      "this node's number; in order of joining if not given", "R", whole_number(0, kMostInt));
  add_flag_with_value(*command, "--rdzv-backend", flags->backend,
                      "where nodes meet: static (at node 0), file (a shared directory) or etcd", "NAME");
  add_flag_with_value(*command, "--rdzv-endpoint", options.endpoint,
                      "HOST:PORT of node 0 or of etcd, or the directory", "WHERE");
  add_flag_with_value(*command, "--rdzv-id", options.run_id, "a name for this launch, the same on all nodes",
                      "ID");
  add_flag_with_value(*command, "--rdzv-timeout", options.rendezvous_timeout_s,
                      "seconds to wait for the other nodes; 600 if not given", "S", number(0));
  add_flag_with_value(*command, "--rdzv-secret-file", options.secret_file,
                      "a file, the same on all nodes and private (mode 600), that tells their processes from "
                      "strangers; needed for several nodes with the backend static",
                      "FILE");
  command->add_flag("--insecure", options.insecure,
                    "several nodes without a secret: let in whoever can reach the ports");
  add_flag_with_value(
      *command, "--rdzv-conf", flags->rendezvous_settings,
      "timeout=S or join_timeout=S (as --rdzv-timeout), last_call_timeout=S (for more nodes than MIN)",
      "K=V,...");
  add_switch(*command, "--standalone", options.standalone, "one node, nobody to meet (also the default)");
  add_flag_with_value(*command, "--max-restarts", options.max_restarts,
                      "times to start all ranks again after a failure; 0 if not given", "N",
                      whole_number(0, kMostInt));
  add_flag_with_value(*command, "--return-after", options.return_after_s,
                      "with parallel.elastic: seconds until lost ranks are started again; 30 if not given",
                      "S", number(0));
  add_flag_with_value(*command, "--monitor-interval", options.monitor_interval_s,
                      "seconds between looks at the other nodes; 1 if not given", "S", number(0.01));
  add_flag_with_value(
      *command, "--stuck-after", options.stuck_after_s,
      "seconds that a rank may be stopped or stuck, beyond what its command is known to take, "
      "before it counts as failed; 5 if not given, 0: for ever",
      "S", number(0));
  add_flag_with_value(*command, "--grace", options.grace_s,
                      "seconds for ranks to save their work after Ctrl-C or SIGTERM; 300 if not given", "S",
                      number(0));
  add_output_flags(*command, *flags);
  add_flag_with_value(*command, "--master-addr", options.master_addr,
                      "MASTER_ADDR of the ranks; node 0's if not given", "HOST");
  add_flag_with_value(*command, "--master-port", options.master_port, "MASTER_PORT; a free one if not given",
                      "PORT", whole_number(1, 65535));
  add_flag_with_value(*command, "--local-addr", options.local_addr,
                      "where other nodes reach this one; found out if not given", "HOST");
  add_flag_with_value(*command, "--role", options.role, "ROLE_NAME of the ranks", "NAME")
      ->capture_default_str();
  add_switch(*command, "-m,--module", flags->module, "PROGRAM is a Python module");
  add_switch(*command, "--no-python", flags->no_python, "run PROGRAM as it is, even if it is called x.py");
  add_switch(*command, "--run-path", flags->run_path, "PROGRAM is a Python file, whatever it is called");
  add_switch(*command, "--virtual-local-rank", options.virtual_local_rank,
             "LOCAL_RANK is 0 for all, and each sees its own GPU alone");
  add_flag_with_value(*command, "--signals-to-handle", flags->signals,
                      "signals to pass on to the ranks beside SIGTERM, SIGINT and SIGHUP: SIGUSR1,...",
                      "LIST");
  add_flag_with_value(*command, "--shutdown-timeout", options.shutdown_s,
                      "seconds for ranks to end when told, after a signal (--grace) and after a failure (5)",
                      "S", number(0));
  add_idle_flags(*command, *flags);
  command->callback([flags, &app, &action] {
    action.run = [flags, &app, &action] { return launch(app, *flags, action.program); };
  });
}

}  // namespace tandem::cli
