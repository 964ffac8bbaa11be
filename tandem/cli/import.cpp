#include <cstdio>
#include <memory>

#include "tandem/base/quantity.h"
#include "tandem/cli/command.h"
#include "tandem/hub/fill_model.h"
#include "tandem/train/import_run.h"

namespace tandem::cli {

void add_import(CLI::App& app, Action& action) {
  struct Flags {
    std::string directory, run;
    std::vector<std::string> sets;
  };
  CLI::App* command =
      add_command(app, "import", "make a run of a Hugging Face directory, with a checkpoint of step 0",
                  "tandem import models/smollm2 runs/tuned");
  auto flags = std::make_shared<Flags>();
  command->add_option("DIR", flags->directory, "holds config.json and safetensors")->required();
  command->add_option("RUN", flags->run, "the run's directory, which is made")->required();
  add_sets_to(*command, flags->sets, "a key of the run's config: --set model.context=1024 (may be repeated)");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      std::filesystem::path run = flags->run;
      if (!run.has_filename()) run = run.parent_path();
      const std::string yaml =
          fmt::format("name: {}\nmodel: {{from: {}}}\n", nlohmann::json(run.filename().string()).dump(),
                      nlohmann::json(flags->directory).dump());
      const ResolvedConfig resolved =
          parse_config(yaml, "tandem import", overrides_of(flags->sets), 1,
                       [](ResolvedConfig& filled) { hub::fill_model(filled, {}); });
      for (const std::string& note : resolved.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
      const Config& config = resolved.config;
      const auto checkpoint = import_run(config, make_backend(config), action.model, run);
      std::printf("%s\n", fmt::format("{}: go on with `tandem train {}/config.yaml --run-dir {}`",
                                      checkpoint.string(), run.string(), run.string())
                              .c_str());
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
