#include "tandem/train/run_report.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <set>

#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/config/enum_names.h"
#include "tandem/config/mesh.h"
#include "tandem/data/tokenized_text.h"
#include "tandem/metrics/summary.h"
#include "tandem/text/tokenizer.h"
#include "tandem/train/run_data.h"

namespace tandem {

double batch_flops(const OpenRun& run, int64_t samples) {
  return static_cast<double>(run.steps->session().step().model_flops) *
         static_cast<double>(samples / run.config.train.micro_batch);
}

namespace {

// Bytes are read as they are; what a tokenizer cannot read as text is told once for each file.
void tell_broken_text(const DataConfig& data, Journal& journal) {
  if (data.tokenizer == kBytes) return;
  std::set<std::string> files;
  for (const DataSources* sources : {&data.train, &data.eval}) {
    for (const DataSource& set : sources->sets) files.insert(set.path);
  }
  for (const std::string& file : files) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored)) continue;
    if (const int64_t replaced = num_replaced_in(file); replaced > 0)
      journal.message(fmt::format("warning: {}: not all of it was UTF-8: {} U+FFFD in place of what was not",
                                  file, replaced));
  }
}

}  // namespace

void announce_run(OpenRun& run, int64_t resumed) {
  const Config& config = run.config;
  Journal& journal = run.journal;
  const CompiledStep& step = run.steps->session().step();
  const std::string what =
      fmt::format("{} parameters, {}, recompute {}, {} planned, {}, {}",
                  format_count(static_cast<double>(step.num_params)), name_of(config.precision),
                  recompute_name(step.recompute), format_bytes(total_bytes(step.sizes)),
                  count_of(run.steps->session().pool().num_threads(), "thread"), run.backend.description);
  journal.message(fmt::format("{}: {}", run.directory.path().string(), what));
  if (const MeshShape& mesh = run.world.at().shape; mesh.world() > 1) {
    journal.message(fmt::format("{} ranks: data {} ({}), tensor {}, pipeline {}; the plan is rank 0's",
                                mesh.world(), mesh.data, name_of(config.parallel.strategy), mesh.tensor,
                                mesh.pipeline));
  }
  if (!run.directory.moved_to().empty()) {
    journal.message(fmt::format("an earlier run was moved to {}", run.directory.moved_to().string()));
  }
  if (resumed > 0) journal.message(fmt::format("resumed from step {}", resumed));
  if (const std::string note = run.steps->train_data().note(); !note.empty()) journal.message(note);
  if (config.model.is_language_model() && keeps_ends_apart(config.data)) {
    const int64_t held_out = run.steps->eval_data().num_samples();
    journal.message(
        fmt::format("{}: the last {} of {} windows are kept for evaluation, the others trained on (with "
                    "another set as data.eval, all)",
                    config.data.train.text(), held_out, held_out + run.steps->train_data().num_samples()));
  }
  tell_broken_text(config.data, journal);
  if (config.threads > num_cores()) {
    journal.message(fmt::format("warning: threads is {}, but this machine has {}; threads=0 takes as many",
                                config.threads, count_of(num_cores(), "core")));
  }
  if (const auto floor = run.steps->eval_data().loss_floor())
    journal.message(fmt::format("no model can do better than a loss of {:.4f}", *floor));
  if (config.precision == Precision::Fp8) {
    const int64_t matrices = matrices_in_fp8(step);
    journal.message(matrices > 0 ? fmt::format("{} matrices in 8 bits", matrices)
                                 : "warning: no product is done in 8 bits: sizes and rows a pass must be "
                                   "multiples of 16");
  }
  if (config.model.has(kStages) && config.model.norm == ImageNorm::Batch && passes_per_step(config) > 1) {
    journal.message(
        "warning: BatchNorm sees one micro-batch at a time; with accumulation its statistics are noisier "
        "(model.norm=group avoids that)");
  }
  journal.event("start", what,
                {{"step", resumed}, {"device", run.backend.name}, {"ranks", run.world.size()}});
}

void finish_run(OpenRun& run, const StepRecord& last, const RunTotals& totals) {
  const Config& config = run.config;
  const Dataset& eval_data = run.steps->eval_data();
  Summary summary;
  summary.steps = last.step;
  summary.steps_this_start = totals.num_steps;
  summary.final_loss = last.loss;
  summary.eval_loss = last.eval_loss;
  summary.eval_accuracy = last.eval_accuracy;
  summary.loss_floor = eval_data.loss_floor();
  summary.best_accuracy = eval_data.best_accuracy();
  summary.unit = unit_of(config.model);
  summary.per_s =
      totals.train_s > 0 ? static_cast<double>(totals.train_targets) / totals.train_s : last.per_s;
  const int64_t targets = config.train.batch * run.steps->train_data().spec().num_targets();
  const double flops_per_target =
      batch_flops(run, config.train.batch) / static_cast<double>(std::max<int64_t>(1, targets));
  if (totals.peak_flops > 0) summary.mfu = summary.per_s * flops_per_target / totals.peak_flops;
  summary.peak_rss_bytes = peak_rss_bytes();
  run.figures.measure(run.steps->session());
  summary.peak_device_bytes = run.figures.peak_bytes();
  summary.library_bytes = run.figures.library_bytes();
  summary.hardware = run.hardware;
  for (int i = 0; i < kNumArenas; ++i) {
    summary.planned_bytes.emplace_back(arena_name(static_cast<Arena>(i)),
                                       run.steps->session().step().sizes[static_cast<size_t>(i)]);
  }
  summary.wall_s = steady_s() - run.options.start_s;
  summary.first_step_s = totals.first_step_s;
  summary.world_size = run.world.size();
  summary.strategy = std::string(name_of(config.parallel.strategy));
  summary.mesh = run.world.at().shape;
  summary.precision = std::string(name_of(config.precision));
  write_summary(run.directory.path(), summary);
  if (const int64_t left_out = run.steps->train_data().num_left_out() + eval_data.num_left_out();
      left_out > 0) {
    run.journal.message(fmt::format("warning: {} could not be read and {} left out (data.broken: skip)",
                                    count_of(left_out, "image"), left_out == 1 ? "was" : "were"));
  }
  run.journal.finish();
  run.journal.event("end", fmt::format("trained to step {}", last.step), {{"step", last.step}});
  run.journal.end_progress();
  std::printf("%s\n", summary_table(summary, run.directory.path()).c_str());
  std::fflush(stdout);
  std::clearerr(stdout);  // the run is done, whether somebody reads this or not; summary.json has it
}

void tell_interrupted(OpenRun& run, const InterruptListener& interrupt, int64_t saved) {
  const int signal = interrupt.signal();
  const std::optional<spot::Notice> notice = interrupt.notice();
  if (notice) run.journal.message("notice: " + notice->text);
  run.journal.event("interrupt",
                    notice              ? "notice: " + notice->text
                    : signal == SIGINT  ? "Ctrl-C"
                    : signal == SIGTERM ? "SIGTERM"
                    : signal == SIGHUP  ? "SIGHUP"
                                        : "another rank was interrupted",
                    {{"step", saved}});
  const bool same_command = run.options.resume.kind == ResumeFrom::Kind::Latest;
  run.journal.message(saved == 0 ? "interrupted before anything was saved: start again to begin"
                                 : fmt::format("interrupted; step {} is saved in {}: start again{} to go on",
                                               saved, run.directory.checkpoints().string(),
                                               same_command ? "" : " with --resume-from-checkpoint latest"));
}

}  // namespace tandem
