#include <csignal>
#include <memory>

#include "tandem/cli/command.h"
#include "tandem/train/trainer.h"

namespace tandem::cli {

void add_train(CLI::App& app, Action& action) {
  struct Flags {
    ConfigFlags config;
    std::string run_dir;
    std::string resume = "latest";
  };
  CLI::App* command = add_command(app, "train", "train a model as a config file says",
                                  "tandem train configs/quickstart.yaml --set train.steps=500");
  auto flags = std::make_shared<Flags>();
  flags->config.add_to(*command);
  add_insecure(*command);
  command->add_option("--run-dir", flags->run_dir, "where to write; runs/<name> if not given")
      ->type_name("DIR");
  command
      ->add_option("--resume-from-checkpoint", flags->resume,
                   "latest (go on where the run directory stands), none (start over), or a checkpoint")
      ->type_name("WHICH")
      ->capture_default_str();
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      const WorldInfo world = read_world();
      const Config config = flags->config.load_to_run(world, flags->run_dir);
      TrainOptions options;
      options.world = world;
      options.run_dir = flags->run_dir.empty() ? "runs/" + config.name : flags->run_dir;
      options.resume = parse_resume(flags->resume);
      options.start_s = action.start_s;
      options.model = action.model;
      const Backend backend = make_backend(config, world);
      // train() listens while there is something to save, and puts this back: a signal between the last step
      // and the end of the process does not make an interruption of a run that is done.
      std::signal(SIGINT, SIG_IGN);
      std::signal(SIGTERM, SIG_IGN);
      return train(config, backend, options);
    };
  });
}

}  // namespace tandem::cli
