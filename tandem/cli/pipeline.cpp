// tandem pipeline: from data to export as one thing that goes on where it was.
#include <cstdio>
#include <memory>

#include "tandem/base/file.h"
#include "tandem/cli/command.h"
#include "tandem/config/values.h"
#include "tandem/pipeline/cluster_job.h"
#include "tandem/pipeline/runner.h"
#include "tandem/pipeline/status.h"

namespace tandem::cli {
namespace {

using pipeline::Plan;

struct PipelineFlags {
  std::string verb, file, out;
  std::vector<std::string> params;
  pipeline::RunOptions run;
  bool json = false;
};

ExitCode show_status(const Plan& plan, bool json) {
  const std::vector<pipeline::StepStatus> status = pipeline::read_status(plan);
  const std::string text = json ? pipeline::status_json(plan, status)
                                          .dump(-1, ' ', false, pipeline::Json::error_handler_t::replace) +
                                      "\n"
                                : pipeline::status_table(plan, status);
  std::printf("%s", text.c_str());
  return ExitCode::Done;
}

ExitCode show_graph(const Plan& plan, const std::string& out) {
  const std::vector<pipeline::StepStatus> status = pipeline::read_status(plan);
  if (out.empty()) {
    std::printf("%s", pipeline::graph_text(plan, status).c_str());
  } else {
    write_atomically(out, pipeline::graph_svg(plan, status));
  }
  return ExitCode::Done;
}

ExitCode run_verb(const PipelineFlags& flags) {
  // What a pipeline's own jobs are made of; FILE is a job's note.
  if (flags.verb == "attend") return static_cast<ExitCode>(pipeline::attend(flags.file));
  if (flags.verb == "step") return static_cast<ExitCode>(pipeline::run_job(flags.file));
  if (flags.verb != "run" && flags.verb != "status" && flags.verb != "graph")
    throw ConfigError("tandem pipeline {}: expected run, status or graph", shortened(flags.verb));
  const Plan plan = pipeline::make_plan(pipeline::make_graph(pipeline::read_spec(flags.file, flags.params)));
  if (flags.verb == "status") return show_status(plan, flags.json);
  if (flags.verb == "graph") return show_graph(plan, flags.out);
  return pipeline::run_pipeline(plan, flags.run);
}

}  // namespace

void add_pipeline(CLI::App& app, Action& action) {
  CLI::App* command =
      add_command(app, "pipeline", "steps from data to export; each runs when what it is made of has changed",
                  "tandem pipeline run examples/pipeline/pipeline.yaml\n"
                  "  tandem pipeline status examples/pipeline/pipeline.yaml\n"
                  "  tandem pipeline graph examples/pipeline/pipeline.yaml --out pipeline.svg");
  auto flags = std::make_shared<PipelineFlags>();
  flags->run.version = TANDEM_VERSION;
  command
      ->add_option(
          "VERB", flags->verb,
          "run: run what is not there yet; status: where each step stands; graph: how they hang together")
      ->required()
      ->type_name("run|status|graph");
  command->add_option("FILE", flags->file, "the pipeline's YAML file; its paths are relative to it")
      ->required();
  command
      ->add_option("--param", flags->params, "another value for one of the file's params (may be repeated)")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->take_all();
  command->add_option("--jobs", flags->run.jobs, "run: steps at the same time, 1 if not given")
      ->check(whole_number(1, kMostJobs))
      ->type_name("N");
  command->add_flag("--keep-going", flags->run.keep_going,
                    "run: after a failure, go on with what does not need the step");
  command->add_flag("--json", flags->json, "status: as JSON");
  command->add_option("--out", flags->out, "graph: write a picture instead")->type_name("FILE.svg");
  command->callback([flags, &action] { action.run = [flags] { return run_verb(*flags); }; });
}

}  // namespace tandem::cli
