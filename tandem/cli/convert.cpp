#include "tandem/convert/convert.h"

#include <fmt/ranges.h>

#include <cstdio>
#include <memory>

#include "tandem/base/file.h"
#include "tandem/cli/command.h"
#include "tandem/hub/fill_model.h"

namespace tandem::cli {
namespace {

struct ConvertFlags {
  std::string file, out, format;
  int64_t ranks = 0;
  bool force = false;
};

void tell(const ConvertFlags& flags, const convert::Converted& converted) {
  size_t lost = 0;
  for (const convert::Finding& finding : converted.findings) {
    lost += finding.kind == convert::FindingKind::Lost ? 1 : 0;
    std::fprintf(stderr, "%s\n", to_string(finding).c_str());
  }
  std::fprintf(stderr, "%s\n",
               fmt::format("{}: {}: {} keys set, {} without a counterpart; {}", flags.file, converted.format,
                           converted.num_keys, lost,
                           converted.ranks == 1
                               ? "start it with tandem train"
                               : fmt::format("start it with tandem launch on {} ranks", converted.ranks))
                   .c_str());
}

ExitCode run_convert(const ConvertFlags& flags) {
  if (!flags.out.empty() && !flags.force && is_there(flags.out))
    throw ConfigError("{}: is there already; give another --out, or --force to replace it", flags.out);
  convert::Request request{flags.file, flags.format, std::nullopt};
  if (flags.ranks > 0) request.ranks = flags.ranks;
  const convert::Converted converted =
      convert::convert_file(request, [](ResolvedConfig& resolved) { hub::fill_model(resolved, ""); });
  const std::string text =
      fmt::format("# From {} ({}), by tandem convert.\n{}",
                  std::filesystem::path(flags.file).filename().string(), converted.format, converted.yaml);
  if (flags.out.empty()) {
    std::printf("%s", text.c_str());
  } else {
    write_atomically(flags.out, text);
  }
  tell(flags, converted);
  return ExitCode::Done;
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  CLI::App* command = add_command(
      app, "convert", "turn a config of DeepSpeed, accelerate, Trainer or torchtitan into one of Tandem",
      "tandem convert ds_config.json --ranks 8 --out converted.yaml");
  auto flags = std::make_shared<ConvertFlags>();
  command->add_option("FILE", flags->file, "a .json, .yaml or .toml file")->required();
  command->add_option("--out", flags->out, "where the config goes; standard output if not given")
      ->type_name("CONFIG");
  command->add_flag("--force", flags->force, "replace what --out names");
  command
      ->add_option("--from", flags->format,
                   fmt::format("{}; found from the file's keys if not given",
                               fmt::join(convert::format_names(), ", ")))
      ->type_name("NAME");
  command->add_option("--ranks", flags->ranks, "ranks that the file was used with, where it does not say")
      ->type_name("N")
      ->check(whole_number(1));
  command->callback([flags, &action] { action.run = [flags] { return run_convert(*flags); }; });
}

}  // namespace tandem::cli
