#include "tandem/train/evaluation/evaluate.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/quantity.h"
#include "tandem/cli/checkpoint_session.h"
#include "tandem/cli/logits.h"
#include "tandem/cli/model_source.h"
#include "tandem/models/model.h"
#include "tandem/train/compile_config.h"
#include "tandem/train/evaluation/eval_sets.h"
#include "tandem/train/model_state.h"
#include "tandem/train/run_data.h"

namespace tandem::cli {
namespace {

// In fp32, whatever the run was trained in, unless --set says otherwise.
ExitCode evaluate_logits(ModelSource& source, const CheckpointFlags& flags, const std::string& file,
                         const std::string& ids, const Action& action) {
  if (!source.config.model.is_language_model())
    throw ConfigError("{}: not a language model; --logits takes tokens", flags.path);
  const bool chosen = std::any_of(flags.sets.begin(), flags.sets.end(),
                                  [](const std::string& set) { return set.starts_with("precision="); });
  if (!chosen) source.config.precision = Precision::Fp32;
  write_logits(source, action.model, parse_ids(ids, source.config.model.vocab), file);
  return ExitCode::Done;
}

}  // namespace

void add_evaluate(CLI::App& app, Action& action) {
  struct Flags {
    CheckpointFlags checkpoint;
    int64_t samples = 0;
    std::string logits, ids;
    bool json = false;
  };
  CLI::App* command =
      add_command(app, "evaluate", "held-out loss of a checkpoint or a Hugging Face directory, or its logits",
                  "tandem evaluate runs/quickstart --set data.eval=my.txt");
  auto flags = std::make_shared<Flags>();
  flags->checkpoint.add_to(*command);
  command->add_option("--samples", flags->samples, "how many; the whole set if not given")
      ->check(whole_number(1))
      ->type_name("N");
  CLI::Option* logits =
      command
          ->add_option("--logits", flags->logits, "write those of --ids instead: fp32, [tokens, vocabulary]")
          ->type_name("FILE.npy");
  CLI::Option* ids =
      command->add_option("--ids", flags->ids, "the tokens of one sequence")->type_name("1,2,3");
  logits->needs(ids);
  ids->needs(logits);
  command->add_flag("--json", flags->json, "print one JSON object");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      ModelSource source(flags->checkpoint);
      if (!flags->logits.empty())
        return evaluate_logits(source, flags->checkpoint, flags->logits, flags->ids, action);
      const Config& config = source.config;
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
      source.load(session, config);
      EvalSets sets(config.data.eval, *data, load, session.host());
      const EvalSets::Report report = sets.evaluate(session);
      const EvalResult& result = report.all;
      if (flags->json) {
        nlohmann::json object = {{"step", source.step()},
                                 {"eval_loss", result.loss},
                                 {"accuracy", result.accuracy},
                                 {"targets", result.targets}};
        if (result.top5) object["top5"] = *result.top5;
        for (const EvalSets::Named& set : report.named) object["eval_loss/" + set.name] = set.result.loss;
        if (const auto floor = data->loss_floor()) object["loss_floor"] = *floor;
        std::printf("%s\n", object.dump().c_str());
      } else {
        const std::string top5 = result.top5 ? fmt::format(", top 5 {:.4f}", *result.top5) : "";
        std::printf("%s\n", fmt::format("step {}: eval loss {:.4f}, accuracy {:.4f}{} over {}", source.step(),
                                        result.loss, result.accuracy, top5,
                                        count_of(result.targets,
                                                 config.model.is_language_model() ? "target" : "image"))
                                .c_str());
        for (const EvalSets::Named& set : report.named)
          std::printf("%s\n", fmt::format("{}: eval loss {:.4f}", set.name, set.result.loss).c_str());
        if (const auto floor = data->loss_floor())
          std::printf("%s\n", fmt::format("loss floor of the data: {:.4f}", *floor).c_str());
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
