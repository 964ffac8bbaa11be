// tandem calibrate: what this machine takes for the steps of configs, as a cluster that `tandem plan` reads.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/base/thread_pool.h"
#include "tandem/cli/command.h"
#include "tandem/config/mesh.h"
#include "tandem/doctor/disk_speed.h"
#include "tandem/plan/calibrate.h"

namespace tandem::cli {
namespace {

constexpr int64_t kDiskBytes = int64_t{64} << 20;
constexpr int64_t kLeastTalk = int64_t{16} << 20;  // bytes, where no config says more

struct CalibrateFlags {
  std::vector<std::string> files, sets;
  std::string device, out, gpu;
  std::string folder = ".";
  int repeats = 7;
};

// The catalogue's name of what the backend runs on.
std::string catalogue_name(const CalibrateFlags& flags, const Backend& backend) {
  if (!flags.gpu.empty()) return plan::find_cluster(flags.gpu).gpu.name;
  if (!backend.memory_bytes) return "cpu";
  std::string text = backend.description;
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const plan::Gpu& gpu : plan::catalogue().gpus) {
    if (text.find(gpu.name.substr(0, gpu.name.find('-'))) != std::string::npos) return gpu.name;
  }
  throw ConfigError("--gpu: the catalogue has no '{}'; name the GPU it is most like, such as --gpu h100-sxm",
                    backend.description);
}

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

// Measures, and writes down what it found.
class Calibrating {
 public:
  Calibrating(const CalibrateFlags& flags, const BuildModel& model) : flags_(flags) {
    options_.model = model;
    options_.repeats = flags.repeats;
    options_.progress = [](const std::string& what) { std::fprintf(stderr, "%s\n", what.c_str()); };
  }

  std::string run() {
    std::vector<Config> configs;
    for (const std::string& file : flags_.files) {
      ConfigFlags one{file, flags_.sets, flags_.device};
      configs.push_back(one.load(WorldInfo{}).config);
      if (configs.back().device != configs.front().device)
        throw ConfigError("{}: runs on another device than {}; calibrate them apart, or add --device", file,
                          flags_.files[0]);
    }
    const Config first = configs.empty() ? Config{} : configs[0];
    const Backend backend = make_backend(first);
    const std::string name = catalogue_name(flags_, backend);
    std::set<int> groups;
    int64_t most_bytes = kLeastTalk;
    for (const Config& config : configs) {
      plan::measure_kernels(config, backend, options_, found_);
      const plan::Talk talk = plan::talk_of(config, backend, options_.model);
      groups.insert(talk.ranks.begin(), talk.ranks.end());
      most_bytes = std::max(most_bytes, talk.most_bytes);
    }
    if (configs.empty()) groups = {2, std::max(2, num_cores())};
    // A GPU's collectives are NCCL's, of many processes: the catalogue has them.
    const bool talks_here = !backend.memory_bytes;
    for (const int ranks : groups) {
      if (!talks_here) break;
      options_.progress(fmt::format("collectives of {} ranks", ranks));
      plan::measure_collectives(ranks, most_bytes, found_);
    }
    return head(name, backend, first) + tables();
  }

 private:
  std::string head(const std::string& name, const Backend& backend, const Config& first) const {
    const bool on_cpu = !backend.memory_bytes;
    const int threads = on_cpu ? 1 : thread_count(first);
    std::string text = fmt::format("# {}, by `tandem calibrate` {}\ngpu: {}\n", hardware_description(),
                                   utc_time().substr(0, 10), name);
    if (on_cpu)
      text += fmt::format("cores: {}\nram_gib: {:.2f}\n", num_cores(),
                          static_cast<double>(total_memory_bytes()) / (1 << 30));
    options_.progress("peaks");
    const double wide = backend.peak_flops(DType::F32, threads),
                 narrow = backend.peak_flops(DType::BF16, threads);
    text += fmt::format(
        "peak_tflops: {:.5f}\nmatmul_tflops: {:.5f}\nfp32_tflops: {:.5f}\nmemory_gbs: {:.2f}\n",
        std::max(wide, narrow) * 1e-12, narrow * 1e-12, wide * 1e-12, backend.copy_bandwidth(threads) * 1e-9);
    text += fmt::format("launch_us: {:.3f}\n", found_.launch * 1e6);
    options_.progress("disk");
    const int64_t room = std::min(kDiskBytes, free_disk_bytes(flags_.folder) / 2);
    const doctor::DiskSpeed disk = doctor::measure_disk(flags_.folder, room);
    if (disk.problem.empty()) {
      text += fmt::format("disk_write_gbs: {:.3f}\n", disk.write_bytes_per_s * 1e-9);
      if (disk.read_bytes_per_s > 0)
        text += fmt::format("disk_read_gbs: {:.3f}\n", disk.read_bytes_per_s * 1e-9);
    } else {
      std::fprintf(stderr, "note: the disk of %s was not measured: %s\n", flags_.folder.c_str(),
                   disk.problem.c_str());
    }
    return text;
  }

  std::string tables() const {
    std::string text;
    if (!found_.collectives.empty()) text += "collectives:  # seconds, by ranks and bytes\n";
    for (const auto& [kind, points] : found_.collectives) {
      text += fmt::format("  {}:\n", kind);
      for (const auto& [bytes, seconds] : points) text += fmt::format("    {}: {:.4g}\n", bytes, seconds);
    }
    if (!found_.kernels.empty()) text += "kernels:  # seconds\n";
    for (const auto& [signature, seconds] : found_.kernels)
      text += fmt::format("  {}: {:.4g}\n", quoted(signature), seconds);
    return text;
  }

  const CalibrateFlags& flags_;
  plan::CalibrateOptions options_;
  plan::Calibration found_;
};

// Before minutes are spent on what could not be written then.
void check_place(const std::string& out) {
  if (out.empty()) return;
  const std::filesystem::path parent = std::filesystem::path(out).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (!std::filesystem::is_directory(folder))
    throw ConfigError("--out {}: no such folder: {}; make it, or name another", out, folder);
  if (std::filesystem::is_directory(out)) throw ConfigError("--out {}: is a directory; name a file", out);
  if (::access(folder.c_str(), W_OK) != 0)
    throw ConfigError("--out {}: {} cannot be written to; name another folder", out, folder);
}

}  // namespace

void add_calibrate(CLI::App& app, Action& action) {
  CLI::App* command = add_command(
      app, "calibrate",
      "measure this machine for `tandem plan`: the kernels of configs' steps, collectives, the disk",
      "tandem calibrate configs/quickstart.yaml --out this-machine.yaml\n"
      "tandem plan configs/quickstart.yaml --cluster this-machine.yaml");
  auto flags = std::make_shared<CalibrateFlags>();
  command->add_option("CONFIG", flags->files,
                      "steps whose kernels are measured, of every kind of rank of their meshes");
  add_sets_to(*command, flags->sets, "change one key of all of them (may be repeated)");
  command->add_option("--device", flags->device, "auto, cpu or cuda; the configs' if not given")
      ->type_name("NAME");
  command->add_option("--out", flags->out, "the file to write; printed if not given")->type_name("FILE");
  command->add_option("--gpu", flags->gpu, "what it is most like in the catalogue, if that is not found out")
      ->type_name("NAME");
  command->add_option("--disk", flags->folder, "the folder whose disk is measured")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_option("--repeats", flags->repeats, "of each step")
      ->check(whole_number(2, kMostInt))
      ->type_name("N")
      ->capture_default_str();
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      if (!std::filesystem::is_directory(flags->folder))
        throw ConfigError("--disk {}: no such folder; name the one where runs are written", flags->folder);
      if (!flags->out.empty() && !flags->out.ends_with(".yaml") && !flags->out.ends_with(".yml"))
        throw ConfigError("--out {}: expected a name that ends in .yaml, by which --cluster knows a file",
                          flags->out);
      check_place(flags->out);
      const std::string text = Calibrating(*flags, action.model).run();
      if (flags->out.empty()) {
        std::printf("%s", text.c_str());
      } else {
        write_atomically(flags->out, text);
        std::printf("wrote %s: tandem plan CONFIG --cluster %s\n", flags->out.c_str(), flags->out.c_str());
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
