#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "tandem/cli/command.h"
#include "tandem/kernels/cuda/devices.h"
#include "tandem/launch/agent.h"

namespace tandem::cli {
namespace {

struct Flags {
  std::string ranks_per_node = "1";
  std::string nodes = "1";
  std::string backend = "static";
  std::string tee;
  LaunchOptions options;
};

// torchrun spells flags with underscores too; those are understood and not listed.
template <typename Value>
CLI::Option* add_flag_with_value(CLI::App& command, const std::string& name, Value& value,
                                 const std::string& what, const std::string& type,
                                 const CLI::Validator& check = {}) {
  std::string underscored = name.substr(2);
  std::replace(underscored.begin(), underscored.end(), '-', '_');
  CLI::Option* option = command.add_option(name, value, what)->type_name(type)->check(check);
  if (underscored != name.substr(2))
    command.add_option("--" + underscored, value, what)->type_name(type)->check(check)->group("");
  return option;
}

std::string own_path() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "tandem" : path.string();
}

ExitCode launch(const CLI::App& app, Flags& flags, const std::vector<std::string>& program) {
  LaunchOptions& options = flags.options;
  std::vector<std::string> subcommands;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    subcommands.push_back(sub->get_name());
  options.program = complete_program(program, own_path(), subcommands);
  options.nodes = parse_nodes(flags.nodes);
  options.backend = parse_backend(flags.backend);
  if (!flags.tee.empty()) options.tee = parse_tee(flags.tee);
  options.ranks_per_node =
      parse_ranks_per_node(flags.ranks_per_node, [] { return static_cast<int>(cuda::devices().size()); });
  Terminal terminal;
  return static_cast<ExitCode>(run_launch(options, terminal));
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
  auto flags = std::make_shared<Flags>();
  LaunchOptions& options = flags->options;
  add_flag_with_value(
      *command, "--nproc-per-node", flags->ranks_per_node,
      "ranks on this node: a number, auto (GPUs, else cores), gpu or cpu (cores); 1 if not given", "N");
  add_flag_with_value(*command, "--nnodes", flags->nodes, "nodes; MIN:MAX starts with whoever has come", "N");
  add_flag_with_value(*command, "--node-rank", options.node_rank,
                      "this node's number; in order of joining if not given", "R", whole_number(0));
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
  command->add_flag("--standalone", options.standalone, "one node, nobody to meet (also the default)");
  add_flag_with_value(*command, "--max-restarts", options.max_restarts,
                      "times to start all ranks again after a failure; 0 if not given", "N", whole_number(0));
  add_flag_with_value(*command, "--monitor-interval", options.monitor_interval_s,
                      "seconds between looks at the other nodes; 1 if not given", "S", number(0.01));
  add_flag_with_value(*command, "--grace", options.grace_s,
                      "seconds for ranks to save their work after Ctrl-C or SIGTERM; 300 if not given", "S",
                      number(0));
  add_flag_with_value(*command, "--log-dir", options.log_dir,
                      "keep each rank's output in DIR/rank-<n>.log; if not given, only after a failure",
                      "DIR");
  add_flag_with_value(
      *command, "--tee", flags->tee,
      "show 1 (stdout), 2 (stderr), 3 (both) or 0 (nothing) of every rank, each line with its "
      "rank; if not given, rank 0 alone, as it is",
      "N");
  add_flag_with_value(*command, "--master-addr", options.master_addr,
                      "MASTER_ADDR of the ranks; node 0's if not given", "HOST");
  add_flag_with_value(*command, "--master-port", options.master_port, "MASTER_PORT; a free one if not given",
                      "PORT", whole_number(1));
  command->callback([flags, &app, &action] {
    action.run = [flags, &app, &action] { return launch(app, *flags, action.program); };
  });
}

}  // namespace tandem::cli
