#include "tandem/cli/command.h"

#include <charconv>
#include <cstdlib>

#include "tandem/config/derive.h"
#include "tandem/hub/fill_model.h"
#include "tandem/hub/kept_files.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/kernels/cuda/backend.h"
#include "tandem/kernels/cuda/device/devices.h"
#include "tandem/train/run_data.h"

namespace tandem::cli {

CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& what,
                      const std::string& example) {
  CLI::App* command = app.add_subcommand(name, what);
  constexpr std::string_view kTandem = "  tandem ";
  std::string lines = "  " + example;
  for (size_t at = lines.find(kTandem); at != std::string::npos; at = lines.find(kTandem, at + 1)) {
    if (at == 0 || lines[at - 1] == '\n')
      lines.replace(at, kTandem.size(), fmt::format("  {} ", app.get_name()));
  }
  command->footer("Example:\n" + lines);
  return command;
}

void add_sets_to(CLI::App& command, std::vector<std::string>& sets, const std::string& what) {
  command.add_option("--set", sets, what)->type_name("KEY=VALUE")->expected(1)->take_all();
}

std::vector<Override> overrides_of(const std::vector<std::string>& sets) {
  std::vector<Override> overrides;
  for (const std::string& assignment : sets) overrides.push_back({assignment, "--set"});
  return overrides;
}

void ConfigFlags::add_to(CLI::App& command) {
  const std::string program = command.get_parent()->get_name();
  command
      .add_option("CONFIG", file,
                  fmt::format("the run's YAML file; `{} explain CONFIG` shows every key", program))
      ->required();
  add_sets_to(command, sets, "change one key: --set train.lr=3e-4 (may be repeated)");
  command.add_option("--device", device, "auto, cpu or cuda; the config's if not given")->type_name("NAME");
}

ResolvedConfig ConfigFlags::load(const WorldInfo& world, const std::string& run_dir) const {
  std::vector<Override> overrides = overrides_of(sets);
  if (!device.empty()) overrides.push_back({"device=" + device, "--device"});
  const auto fill = [&](ResolvedConfig& resolved) {
    const std::filesystem::path run = run_dir.empty() ? "runs/" + resolved.config.name : run_dir;
    hub::fill_model(resolved, run / hub::kKeptFolder);
  };
  ResolvedConfig resolved = load_config(file, overrides, world.world_size, fill);
  resolve_epochs(resolved);
  for (const std::string& note : resolved.notes) {
    if (world.rank == 0) std::fprintf(stderr, "note: %s\n", note.c_str());
  }
  return resolved;
}

Config ConfigFlags::load_to_run(const WorldInfo& world, const std::string& run_dir) const {
  Config config = load(world, run_dir).config;
  follow_ranks(config, world.world_size);
  return config;
}

void add_insecure(CLI::App& command) {
  command.add_flag_callback(
      "--insecure", [] { setenv(kInsecureVariable, "1", 1); },
      "ranks on several hosts without a launcher or a secret: let in whoever can reach the ports");
}

namespace {

// A number for which `fits` is true.
template <typename Number, typename Fits>
CLI::Validator number_that(Fits fits, std::string expected) {
  const auto check = [fits, expected](const std::string& text) -> std::string {
    Number value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && fits(value)) return "";
    return fmt::format("expected {}, found '{}'", expected, text);
  };
  return CLI::Validator(check, "");
}

}  // namespace

CLI::Validator whole_number(int64_t least, int64_t most) {
  const bool bounded = most < std::numeric_limits<int64_t>::max();
  return number_that<int64_t>([=](int64_t value) { return value >= least && value <= most; },
                              fmt::format("a whole number of at least {}{}", least,
                                          bounded ? fmt::format(" and at most {}", most) : ""));
}

CLI::Validator number(double least) {
  return number_that<double>([least](double value) { return value >= least; },
                             fmt::format("a number of at least {}", least));
}
CLI::Validator positive_fraction() {
  return number_that<double>([](double value) { return value > 0 && value <= 1; },
                             "a number above 0 and at most 1");
}

Backend make_backend(const Config& config, const WorldInfo& world) {
  // Only `auto` looks for GPUs: waking the driver takes a fifth of a second.
  const bool auto_cuda = config.device == DeviceKind::Auto && cuda::is_built() && !cuda::devices().empty();
  if (config.device != DeviceKind::Cuda && !auto_cuda) return cpu::make_backend();
  return cuda::make_backend(cpu::make_backend().kernels, world);
}

}  // namespace tandem::cli
