#include "tandem/launch/options.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"

namespace tandem {
namespace {

std::optional<int> read_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

constexpr const char* kDefaultPort = ":29400";  // torchrun's

int count_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

}  // namespace

int parse_ranks_per_node(std::string_view text, const std::function<int()>& count_gpus) {
  if (text == "cpu") return count_cores();
  if (text == "auto" || text == "gpu") {
    const int gpus = count_gpus();
    if (gpus > 0) return gpus;
    if (text == "gpu")
      throw ConfigError("--nproc-per-node gpu: no GPU found on this node; use cpu, auto or a number");
    return count_cores();
  }
  const std::optional<int> number = read_number(text);
  constexpr int kMost = 4096;
  if (!number || *number < 1 || *number > kMost)
    throw ConfigError("--nproc-per-node: expected a number from 1 to {}, auto, gpu or cpu, found '{}'", kMost,
                      text);
  return *number;
}

NodeRange parse_nodes(std::string_view text) {
  const size_t colon = text.find(':');
  const std::optional<int> least = read_number(text.substr(0, colon));
  const std::optional<int> most =
      colon == std::string_view::npos ? least : read_number(text.substr(colon + 1));
  if (!least || !most || *least < 1 || *most < *least)
    throw ConfigError("--nnodes: expected a number of nodes, or MIN:MAX with 1 <= MIN <= MAX, found '{}'",
                      text);
  return {*least, *most};
}

RendezvousBackend parse_backend(std::string_view text) {
  if (text == "static" || text == "c10d") return RendezvousBackend::Static;  // c10d: torchrun's tcp store
  if (text == "file") return RendezvousBackend::File;
  if (text == "etcd" || text == "etcd-v2") return RendezvousBackend::Etcd;
  constexpr std::array<std::string_view, 3> kNames = {"static", "file", "etcd"};
  throw ConfigError("--rdzv-backend: expected static, file or etcd, found '{}'; did you mean '{}'?", text,
                    nearest(text, kNames));
}

HostPort parse_endpoint(const std::string& text, std::string_view flag) {
  return parse_host_port(text.find(':') == std::string::npos ? text + kDefaultPort : text, flag);
}

HostPort parse_host_port(std::string_view text, std::string_view flag) {
  const size_t colon = text.rfind(':');
  const std::optional<int> port =
      colon == std::string_view::npos ? std::nullopt : read_number(text.substr(colon + 1));
  if (colon == 0 || !port || *port < 1 || *port > 65535)
    throw ConfigError("{}: expected HOST:PORT, found '{}'", flag, text);
  return {std::string(text.substr(0, colon)), *port};
}

void check_options(const LaunchOptions& options) {
  if (options.program.empty())
    throw ConfigError(
        "tandem launch: no program to run; give one after the flags, such as 'train CONFIG' or "
        "'-- python3 script.py'");
  if (options.standalone && options.nodes.most > 1)
    throw ConfigError("--standalone is for one node, found --nnodes {}; leave one of them out",
                      options.nodes.most);
  if (options.node_rank >= options.nodes.most)
    throw ConfigError("--node-rank: expected less than --nnodes {}, found {}", options.nodes.most,
                      options.node_rank);
  if (options.insecure && !options.secret_file.empty())
    throw ConfigError("--insecure: given beside --rdzv-secret-file; leave one of them out");
  if (options.master_port > 65535)
    throw ConfigError("--master-port: expected at most 65535, found {}", options.master_port);
  if (options.is_local()) return;
  switch (options.backend) {
    case RendezvousBackend::Static:
      if (!options.endpoint.empty()) {
        parse_endpoint(options.endpoint, "--rdzv-endpoint");
      } else if (options.master_addr.empty() || options.master_port == 0) {
        throw ConfigError(
            "--nnodes {}: nodes have to find each other; give all of them the same --rdzv-endpoint "
            "HOST:PORT (of node 0), or --master-addr and --master-port",
            options.nodes.most);
      } else if (options.master_port > 65534) {
        throw ConfigError(
            "--master-port: expected at most 65534 (the launchers use the one after it), found {}",
            options.master_port);
      }
      break;
    case RendezvousBackend::File:
      if (options.endpoint.empty())
        throw ConfigError("--rdzv-backend file: needs --rdzv-endpoint DIR, a directory that all nodes share");
      break;
    case RendezvousBackend::Etcd:
      if (options.endpoint.empty())
        throw ConfigError("--rdzv-backend etcd: needs --rdzv-endpoint HOST:PORT of the etcd server");
      parse_host_port(options.endpoint, "--rdzv-endpoint");
      break;
  }
}

size_t find_program(std::span<const std::string> words) {
  constexpr std::array<std::string_view, 9> kWithoutValue = {
      "--standalone", "--insecure",          "--help", "-h", "-m", "--module", "--no-python",
      "--run-path",   "--virtual-local-rank"};
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    if (word == "--") return i + 1;
    if (!word.starts_with('-')) return i;
    std::replace(word.begin(), word.end(), '_', '-');
    const bool is_short_with_value = word.size() > 2 && word[1] != '-';  // -t3
    const bool has_value = word.find('=') == std::string::npos && !is_short_with_value &&
                           std::find(kWithoutValue.begin(), kWithoutValue.end(), word) == kWithoutValue.end();
    if (has_value) ++i;
  }
  return words.size();
}

std::vector<std::string> complete_program(std::vector<std::string> program, ProgramKind kind,
                                          const std::string& self, std::span<const std::string> subcommands,
                                          const std::string& python) {
  constexpr const char* kRunPath =
      "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')";
  if (program.empty()) return program;
  switch (kind) {
    case ProgramKind::Any:
      if (std::find(subcommands.begin(), subcommands.end(), program.front()) != subcommands.end()) {
        program.insert(program.begin(), self);
      } else if (program.front().ends_with(".py")) {
        program.insert(program.begin(), {python, "-u"});
      }
      break;
    case ProgramKind::Module: program.insert(program.begin(), {python, "-u", "-m"}); break;
    case ProgramKind::NoPython: break;
    case ProgramKind::RunPath: program.insert(program.begin(), {python, "-u", "-c", kRunPath}); break;
  }
  return program;
}

}  // namespace tandem
