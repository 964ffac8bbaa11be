// tandem doctor: what this node has, and what is wrong with it; with --cluster all nodes, and the links
// between them.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/cli/command.h"
#include "tandem/comm/launch_notes.h"
#include "tandem/comm/tcp/own_address.h"
#include "tandem/doctor/cluster_findings.h"
#include "tandem/kernels/cpu/cpu_features.h"
#include "tandem/kernels/cuda/device/devices.h"

namespace tandem::cli {
namespace {

using doctor::Finding;
using doctor::Node;
using Json = nlohmann::ordered_json;

constexpr int64_t kDiskBytes = int64_t{64} << 20;

struct DoctorFlags {
  bool cluster = false, json = false;
  std::string folder = ".";
};

// By which other nodes reach this one: where there are any, its end of the way to rank 0.
doctor::Choice choice_of(const std::vector<doctor::Interface>& interfaces, const WorldInfo& world) {
  if (world.world_size > 1 && world.rank != 0 && !means_loopback(world.master_addr)) {
    const std::string address = address_on_the_way_to(world.master_addr, world.master_port);
    if (!means_loopback(address))
      return doctor::choose_interface(interfaces, address, fmt::format("rank 0 ({})", world.master_addr));
  }
  return doctor::choose_interface(interfaces, outer_address(), "machines outside");
}

Node examine(const DoctorFlags& flags, const WorldInfo& world) {
  std::error_code none;
  if (!std::filesystem::is_directory(flags.folder, none))
    throw ConfigError("--disk {}: no such folder; name the one where runs are written", flags.folder);
  Node node = doctor::read_node();
  node.version = TANDEM_VERSION;
  node.program_isa = cpu::isa_name(cpu::selected_isa());
  node.best_isa = cpu::isa_name(cpu::detected_isa());
  node.has_cuda = cuda::is_built();
  for (const cuda::Device& device : cuda::devices()) node.gpus.push_back({device.name, device.memory_bytes});
  node.folder = std::filesystem::canonical(flags.folder).string();
  node.disk_free_bytes = free_disk_bytes(flags.folder);
  node.disk = doctor::measure_disk(flags.folder, std::min(kDiskBytes, node.disk_free_bytes / 2));
  node.choice = choice_of(node.interfaces, world);
  return node;
}

void print(const Json& json) {
  std::printf("%s\n", json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

ExitCode ending(bool breaks) {
  if (!breaks) return ExitCode::Done;
  tell_final();  // to a launcher: a restart would change nothing
  return ExitCode::Failed;
}

ExitCode examine_here(const DoctorFlags& flags) {
  const Node node = examine(flags, WorldInfo{});
  const std::vector<Finding> findings = doctor::find_problems(node);
  if (flags.json) {
    print({{"node", doctor::to_json(node)}, {"findings", doctor::to_json(findings)}});
  } else {
    std::printf("%s\n%s", doctor::node_text(node).c_str(), doctor::findings_text(findings).c_str());
  }
  return ending(doctor::any_breaks(findings));
}

// Ranks of one machine and one network share a place: the first of them speaks for it.
std::string place_of(const Node& node) {
  std::error_code none;
  return fmt::format("{} {} {}", node.name, read_text("/proc/sys/kernel/random/boot_id"),
                     std::filesystem::read_symlink("/proc/self/ns/net", none).string());
}

// The nodes of what all ranks have told, and every finding of each.
doctor::Cluster nodes_of(const std::vector<std::string>& told, std::vector<Finding>& findings) {
  doctor::Cluster cluster;
  std::vector<std::string> places, names;
  for (size_t rank = 0; rank < told.size(); ++rank) {
    const Json json = Json::parse(told[rank]);
    const auto place = json["place"].get<std::string>();
    if (std::find(places.begin(), places.end(), place) != places.end()) continue;
    places.push_back(place);
    names.push_back(json["node"]["name"].get<std::string>());
    const Json& node = json["node"];
    cluster.nodes.push_back({static_cast<int>(rank), names.back(),
                             node["network"]["chosen"]["address"].get<std::string>(), node.dump(),
                             json["findings"].dump()});
  }
  for (doctor::ClusterNode& node : cluster.nodes) {
    if (std::count(names.begin(), names.end(), node.name) > 1) node.name += " " + node.address;
    for (const Json& finding : Json::parse(node.finding_json))
      findings.push_back({finding["severity"] == "breaks", finding["about"],
                          fmt::format("{}: {}", node.name, finding["what"].get<std::string>()),
                          finding["do"]});
  }
  return cluster;
}

ExitCode examine_cluster(const DoctorFlags& flags) {
  const WorldInfo world = read_world();
  if (world.world_size == 1)
    throw ConfigError(
        "--cluster: is for ranks on several nodes; start it on each of them with `tandem launch --nnodes N "
        "... doctor --cluster`, or with `srun tandem doctor --cluster`");
  const Node node = examine(flags, world);
  MeshShape shape;
  shape.data = world.world_size;
  ConnectOptions options;
  options.transport = Transport::Tcp;  // the way between nodes, also where ranks could share memory
  const Communicators comms = connect(world, MeshPosition::of(shape, world.rank), options);
  Communicator& comm = *comms.get(Axis::World);
  const Json own = {{"place", place_of(node)},
                    {"node", doctor::to_json(node)},
                    {"findings", doctor::to_json(doctor::find_problems(node))}};
  std::vector<Finding> findings;
  doctor::Cluster cluster = nodes_of(
      doctor::gather_texts(comm, own.dump(-1, ' ', false, Json::error_handler_t::replace)), findings);
  std::vector<int> ends;
  for (const doctor::ClusterNode& one : cluster.nodes) ends.push_back(one.rank);
  cluster.links = doctor::measure_links(comm, ends);
  for (const Finding& finding : doctor::find_problems(cluster)) findings.push_back(finding);
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.breaks && !b.breaks; });
  if (world.rank == 0 && flags.json) {
    Json json = {{"transport", comm.description()}};
    json.update(doctor::to_json(cluster));
    json["findings"] = doctor::to_json(findings);
    print(json);
  } else if (world.rank == 0) {
    std::printf("%zu nodes over %s\n%s\n%s", cluster.nodes.size(), comm.description().c_str(),
                doctor::cluster_text(cluster).c_str(), doctor::findings_text(findings).c_str());
  }
  comm.barrier("told");
  return ending(doctor::any_breaks(findings));
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  CLI::App* command =
      add_command(app, "doctor", "what this node has, what is wrong with it, and how fast links are",
                  "tandem doctor --disk .\n"
                  "  tandem launch --nnodes 2 --rdzv-endpoint node-a:29400 --rdzv-secret-file FILE doctor "
                  "--cluster   (on each node)");
  auto flags = std::make_shared<DoctorFlags>();
  command->add_flag(
      "--cluster", flags->cluster,
      "all nodes, and the bandwidth and latency of every link between two; under tandem launch or srun");
  command->add_flag("--json", flags->json, "print one JSON object");
  command->add_option("--disk", flags->folder, "the folder whose disk is tried (.)")->type_name("DIR");
  add_insecure(*command);
  command->callback([flags, &action] {
    action.run = [flags] { return flags->cluster ? examine_cluster(*flags) : examine_here(*flags); };
  });
}

}  // namespace tandem::cli
