#include "tandem/train/evaluate.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/quantity.h"
#include "tandem/cli/checkpoint_session.h"
#include "tandem/models/model.h"
#include "tandem/train/compile_config.h"
#include "tandem/train/model_state.h"
#include "tandem/train/run_data.h"

namespace tandem::cli {

void add_evaluate(CLI::App& app, Action& action) {
  struct Flags {
    CheckpointFlags checkpoint;
    int64_t samples = 0;
    bool json = false;
  };
  CLI::App* command = add_command(app, "evaluate", "held-out loss of a checkpoint",
                                  "tandem evaluate runs/quickstart --set data.eval=my.txt");
  auto flags = std::make_shared<Flags>();
  flags->checkpoint.add_to(*command);
  command->add_option("--samples", flags->samples, "how many; the whole set if not given")
      ->check(whole_number(1))
      ->type_name("N");
  command->add_flag("--json", flags->json, "print one JSON object");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      const Manifest manifest = find_checkpoint(flags->checkpoint.path);
      const Config config = checkpoint_config(manifest, flags->checkpoint.sets);
      const Backend backend = make_backend(config);
      ThreadPool pool(thread_count(config));
      const std::unique_ptr<Dataset> data = open_run_data(config, Split::Eval);
      LoaderOptions load = eval_loader_options(config);
      load.max_samples = flags->samples;
      CompileOptions options = compile_options(config, backend);
      options.host_bytes = [&](const CompiledStep&) { return loader_bytes(data->spec(), load); };
      CompiledStep step =
          compile_forward(action.model(config.model, config.train.micro_batch), options, ForwardOutput::Loss);
      Session session(std::move(step), backend, pool);
      load_weights(session, manifest);
      Loader loader(*data, load, session.host());
      const EvalResult result = tandem::evaluate(session, loader);
      if (flags->json) {
        nlohmann::json object = {{"step", manifest.meta.step},
                                 {"eval_loss", result.loss},
                                 {"accuracy", result.accuracy},
                                 {"targets", result.targets}};
        if (const auto floor = data->loss_floor()) object["loss_floor"] = *floor;
        std::printf("%s\n", object.dump().c_str());
      } else {
        std::printf("%s\n", fmt::format("step {}: eval loss {:.4f}, accuracy {:.4f} over {}",
                                        manifest.meta.step, result.loss, result.accuracy,
                                        count_of(result.targets,
                                                 config.model.is_language_model() ? "target" : "image"))
                                .c_str());
        if (const auto floor = data->loss_floor())
          std::printf("%s\n", fmt::format("loss floor of the data: {:.4f}", *floor).c_str());
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
