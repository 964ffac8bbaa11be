#include <cstdio>
#include <memory>

#include "tandem/cli/command.h"
#include "tandem/cli/model_source.h"
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
      std::vector<std::string> sets = {"name=" + run.filename().string()};
      sets.insert(sets.end(), flags->sets.begin(), flags->sets.end());
      const Config config = hub_config(flags->directory, sets);
      const auto checkpoint = import_run(config, make_backend(config), action.model, run);
      std::printf("%s\n", fmt::format("{}: go on with `tandem train {}/config.yaml --run-dir {}`",
                                      checkpoint.string(), run.string(), run.string())
                              .c_str());
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
