// What a user asks of `tandem launch`, in torchrun's words.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/launch/flag_values.h"

namespace tandem {

enum class RendezvousBackend { Static, File, Etcd };

struct NodeRange {
  int least = 1;
  int most = 1;
};

struct LaunchOptions {
  int ranks_per_node = 1;
  NodeRange nodes;
  int node_rank = -1;  // -1: nodes are numbered in the order in which they join
  RendezvousBackend backend = RendezvousBackend::Static;
  std::string endpoint;     // HOST:PORT, or a directory for File
  std::string run_id;       // empty: made up where one node is all there is, "none" otherwise
  std::string secret_file;  // what tells this launch's processes from strangers; empty: see launch_secret.h
  bool insecure = false;    // nothing does
  bool standalone = false;
  double rendezvous_timeout_s = 600;
  int max_restarts = 0;
  int rank_unit = 0;                 // ranks may come and go in multiples of this; 0: all or none of them
  double return_after_s = 30;        // until those that went are started again
  double monitor_interval_s = 1;     // between looks at the other nodes; own ranks are noticed at once
  double stuck_after_s = 5;          // that a rank may hinder the others; 0: as long as it likes
  double grace_s = 300;              // for ranks to end by themselves after a forwarded signal
  std::string log_dir;               // empty: a temporary directory that only a failure leaves behind
  double last_call_s = 3;            // for more nodes than the least
  std::optional<double> shutdown_s;  // instead of grace, and of what ranks have when another has failed
  StreamChoice tee;                  // shown with a prefix, in place of rank 0 as it is
  StreamChoice redirects;            // not shown
  std::set<int> shown_local_ranks;   // empty: any
  std::string prefix_template;       // empty: "[rank N] "
  std::vector<std::string> out_filters, err_filters;
  std::vector<int> more_signals;  // taken as requests to stop
  std::string role = "default";
  std::string local_addr;  // where other nodes reach this one; empty: found out
  bool virtual_local_rank = false;
  bool is_tandem = false;   // the program is this one
  std::string master_addr;  // empty: node 0's own
  int master_port = 0;      // 0: one that is free
  std::vector<std::string> program;

  // One node needs nobody else: no store, no network.
  bool is_local() const { return standalone || nodes.most == 1; }
};

// "4", or "auto" (GPUs, else cores), "gpu", "cpu" (cores). `count_gpus` is asked only where it matters.
int parse_ranks_per_node(std::string_view text, const std::function<int()>& count_gpus);
NodeRange parse_nodes(std::string_view text);  // "2" or "1:4"
RendezvousBackend parse_backend(std::string_view text);

// Throws ConfigError where flags contradict each other or one is missing.
void check_options(const LaunchOptions& options);

// The index of the first word that belongs to the program, in the words after `launch`: everything from the
// first that is neither a flag nor a flag's value, or after "--". The number of words where there is none.
size_t find_program(std::span<const std::string> words);

// How the program's first word is meant.
enum class ProgramKind {
  Any,  // a subcommand of tandem runs `self`, a Python file runs under `python`, and all else is run as it is
  Module,    // of Python
  NoPython,  // as it is, whatever it is called
  RunPath    // a Python file, run by runpy
};

// The command that runs `program`.
std::vector<std::string> complete_program(std::vector<std::string> program, ProgramKind kind,
                                          const std::string& self, std::span<const std::string> subcommands,
                                          const std::string& python);

struct HostPort {
  std::string host;
  int port = 0;
};
HostPort parse_host_port(std::string_view text, std::string_view flag);  // throws ConfigError naming the flag
HostPort parse_endpoint(const std::string& text,
                        std::string_view flag);  // ... the port may be missing: 29400

}  // namespace tandem
