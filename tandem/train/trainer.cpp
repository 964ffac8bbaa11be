#include "tandem/train/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/mend.h"
#include "tandem/checkpoint/writer.h"
#include "tandem/comm/places/place_page.h"
#include "tandem/comm/wait_time.h"
#include "tandem/train/checkpoint_meta.h"
#include "tandem/train/config_changes.h"
#include "tandem/train/device_threads.h"
#include "tandem/train/divergence.h"
#include "tandem/train/evaluation/best_checkpoint.h"
#include "tandem/train/evaluation/eval_watch.h"
#include "tandem/train/evaluation/run_evaluation.h"
#include "tandem/train/hub_start.h"
#include "tandem/train/interrupt.h"
#include "tandem/train/lr_schedule.h"
#include "tandem/train/model_state.h"
#include "tandem/train/news/batch_facts.h"
#include "tandem/train/news/loss_watch.h"
#include "tandem/train/news/tensor_histograms.h"
#include "tandem/train/open_run.h"
#include "tandem/train/run_data.h"
#include "tandem/train/run_report.h"
#include "tandem/train/saving/memory_copies.h"
#include "tandem/train/saving/run_budget.h"
#include "tandem/train/saving/save_clock.h"
#include "tandem/train/saving/save_group.h"
#include "tandem/train/saving/state_proof.h"
#include "tandem/train/storage/store_behind.h"
#include "tandem/watch/spot/watcher.h"

namespace tandem {
namespace {

class Trainer {
 public:
  Trainer(OpenRun& run, const InterruptListener& interrupt)
      : run_(run),
        interrupt_(interrupt),
        config_(run.config),
        world_(run.world),
        session_(run.steps->session()),
        runner_(run.steps->runner()),
        directory_(run.directory),
        journal_(run.journal),
        histograms_(session_, world_, config_.log.histograms),
        watch_(run.config.train),
        clock_(run.config.checkpoint, steady_s()),
        budget_(run.config, run.directory.path(), run.options.start_s,
                run.options.resume.kind != ResumeFrom::Kind::None, world_, journal_),
        proof_(session_, world_, run.steps->loader(), runner_, config_.checkpoint.replay, directory_.path()) {
  }

  ExitCode run() {
    journal_.log(fmt::format("rank {} of {} on {}, process {}", world_.at().rank(), world_.size(), hostname(),
                             ::getpid()));
    try {
      return run_steps();
    } catch (const std::exception& error) {
      journal_.log(fmt::format("error: {}", error.what()));
      journal_.event("failure", error.what(), {{"step", last_.step}});
      throw;
    }
  }

 private:
  ExitCode run_steps() {
    const int64_t resumed = start_state();
    if (world_.leads()) mend();
    if (resumed >= config_.train.steps || ended_early(resumed)) {
      if (resumed >= config_.train.steps) {
        journal_.message(
            fmt::format("{}: already trained to step {}; raise train.steps to go on, or start over with "
                        "--resume-from-checkpoint none",
                        directory_.path().string(), resumed));
      }
      // It may have been killed after its last checkpoint and before its end, also on a machine that is gone.
      StoreBehind store(run_, save_group(world_, state_staging_bytes(session_.step())));
      store.catch_up();
      store.finish();
      if (world_.leads() && !std::filesystem::exists(directory_.path() / "summary.json"))
        finish_run(run_, last_, totals_);
      return ExitCode::Done;
    }
    if (world_.leads()) {
      keep_hub(config_, directory_.path(), run_.restored);
      directory_.write_plan(session_.step());
      directory_.write_config(config_, changed_);  // last: a config without a plan is not a run's
    }
    journal_.begin_steps(resumed, run_.figures.columns(), run_.goes_on_here());
    if (config_.checkpoint.memory > 0) copies_.emplace(session_.step(), world_, run_.options.world);
    const SaveGroup group = save_group(world_, state_staging_bytes(session_.step()));
    StoreBehind store(run_, group);  // outlives the writer, which calls it
    store_ = &store;
    CheckpointWriter writer(directory_.checkpoints(), static_cast<int>(config_.checkpoint.keep),
                            &session_.pool(), group, [this](const SaveReport& report) { tell_save(report); });
    try {
      return take_steps(writer, resumed);
    } catch (const CommError&) {
      writer.close();  // peers leave a rank whose save has failed, and it may hear of that first
      throw;
    }
  }

  ExitCode take_steps(CheckpointWriter& writer, int64_t resumed) {
    world_.barrier("checkpoints folder");  // rank 0 has cleared it
    announce_run(run_, resumed);
    store_->begin(writer);
    store_->catch_up();
    if (world_.leads()) std::filesystem::remove(directory_.path() / "summary.json");  // of a shorter run
    // Going back to an older checkpoint makes it the newest: whatever happens next, `latest` is on this
    // branch.
    if (run_.options.resume.kind == ResumeFrom::Kind::Path)
      save(writer, last_, /*may_be_async=*/false, /*only_finite=*/false);
    if (run_.is_from_memory()) save(writer, last_, /*may_be_async=*/true, /*only_finite=*/false);
    if (!world_.all(interrupt_.signal() == 0, "start")) return interrupted(writer, resumed);
    if (budget_.is_over()) return budget_.reached(resumed);
    if (config_.train.eval_at_start && resumed == 0) evaluate_start();
    divergence_ = Divergence(resumed);
    for (int64_t step = resumed + 1; step <= config_.train.steps; ++step) {
      if (proof_.is_due(step)) saving([&] { writer.wait(); });  // whose memory it uses
      const bool costs_all = budget_.is_last(clock_.time_of_save_s());
      const StepResult result = timed_step(step, costs_all);
      StepRecord record = record_of(step, result);
      const bool final = step == config_.train.steps;
      const bool evaluated = config_.train.eval_every > 0 && (step % config_.train.eval_every == 0 || final);
      const bool best = evaluated && add_evaluation(record) && config_.checkpoint.best != "none";
      const bool early = evaluated && !final && watch_.is_out_of_patience();
      const bool last = final || early;
      budget_.tell();
      journal_.step(record);
      last_ = record;
      if (histograms_.is_due(step)) journal_.histograms(histograms_.take_weights());
      if (!result.applied) {
        journal_.event("overflow", fmt::format("step {} skipped: gradients were not finite", step),
                       {{"step", step}});
      }
      tell_news(loss_watch_.add(step, result.loss), step, result, run_.steps->loader(), journal_);
      check_diverged(result, step, last);
      report_saves(writer);
      // After the last step there is nothing to interrupt. A lone rank sees a signal of this very step;
      // several agree on those that had come when the step's norm was summed.
      const bool stop = !last && (world_.size() > 1 ? result.stop : costs_all || interrupt_.signal() != 0);
      const bool due = is_due(step, result, last);
      if ((due || stop || best) && divergence_.lost_steps() == 0 && (!stop || save_fits())) {
        journal_.sync();
        const bool only_one = config_.checkpoint.keep == 1;  // which this one pushes out
        if (!save(writer, record, !stop, only_one || last, best) && last) throw_diverged(step);
      }
      // Also where a save is under way: until that is committed, this is the newest.
      if (copies_ && !stop && !last && step % config_.checkpoint.memory == 0 && divergence_.lost_steps() == 0)
        saving([&] { copies_->keep(meta_of(record), session_); });
      if (stop) {
        saving([&] { writer.wait_committed(); });
        store_->finish();
        if (budget_.is_reason(costs_all)) {
          report_saves(writer);
          return budget_.reached(divergence_.saved());
        }
        return interrupted(writer, divergence_.saved());
      }
      if (early) {
        tell_early_end(step);
        break;
      }
    }
    saving([&] { writer.wait_committed(); });
    report_saves(writer);
    store_->finish();
    if (world_.leads()) finish_run(run_, last_, totals_);
    budget_.end();
    journal_.log(fmt::format("trained to step {}", last_.step));
    return ExitCode::Done;
  }

  bool is_due(int64_t step, const StepResult& result, bool last) const {
    const SaveEvery& every = config_.checkpoint.every;
    if (last) return every.saves() || config_.checkpoint.minutes > 0;
    return (every.steps > 0 && step % every.steps == 0) || result.save;
  }

  // Whether a save can end before a notice does. One that is under way is finished in any case.
  bool save_fits() {
    const std::optional<spot::Notice> notice = interrupt_.notice();
    const std::string why = notice ? clock_.why_no_save(*notice, unix_s()) : "";
    const bool fits = world_.all(why.empty(), "notice");
    if (!fits)
      journal_.message("no save is begun: " + (why.empty() ? "another rank's notice is too short" : why));
    return fits;
  }

  // Returns the step to go on from: 0 for a fresh start.
  int64_t start_state() {
    for (const Skipped& bad : run_.restored.skipped) {
      journal_.message(fmt::format("warning: skipped a bad checkpoint: {}", bad.reason));
      journal_.event("bad_checkpoint", bad.reason, {{"directory", bad.directory.string()}});
    }
    if (!run_.restored.manifest) return 0;
    const Manifest& manifest = *run_.restored.manifest;
    last_ = restore_meta(manifest.meta, config_, runner_, run_.steps->loader());
    count_ = last_.count;
    std::vector<ConfigChange> changes = config_changes(manifest.meta, config_);
    if (last_.step == 0) changes.clear();  // an import has done nothing with them
    for (const std::string& change :
         changes_of_data(manifest.meta, changes, config_, run_.data_fingerprint)) {
      journal_.message("warning: " + change);
      journal_.event("warning", change);
    }
    const bool from_memory = run_.is_from_memory();
    journal_.event("resume", fmt::format("from step {}{}", last_.step, from_memory ? ", in memory" : ""),
                   {{"step", last_.step}, {"checkpoint", manifest.directory.string()}});
    tell_changes(changes);
    watch_.restore(manifest.meta.scalars.value("evaluations", nlohmann::json()));
    clock_.restore(manifest.meta.metrics);
    return last_.step;
  }

  void tell_changes(const std::vector<ConfigChange>& changes) {
    if (changes.empty()) return;
    nlohmann::json fields = {{"step", last_.step}};
    std::string list;
    for (const ConfigChange& change : changes) {
      fields["changes"][std::string(change.key)] = {{"before", change.before}, {"after", change.after}};
      list += (list.empty() ? "" : ", ") + change.text();
    }
    changed_ = fmt::format("changed after step {}: {}", last_.step, list);
    journal_.message(changed_);
    journal_.event("changed", changed_, fields);
  }

  // What an earlier process was killed before it had done.
  void mend() {
    for (const std::filesystem::path& path : directory_.remove_leftovers())
      journal_.message(fmt::format("warning: {}: cannot be removed; a killed run left it", path.string()));
    if (run_.goes_on_here() && config_.checkpoint.best != "none") mend_best(directory_.checkpoints(), watch_);
    const Latest elsewhere{std::nullopt, {}};  // a save will say which is the newest
    const bool goes_on =
        run_.options.resume.kind == ResumeFrom::Kind::Latest && run_.goes_on_here() && !run_.is_from_memory();
    for (const std::string& trouble :
         mend_checkpoints(directory_.checkpoints(), static_cast<int>(config_.checkpoint.keep),
                          goes_on ? run_.restored : elsewhere)) {
      journal_.message("warning: " + trouble);
    }
  }

  StepResult timed_step(int64_t step, bool costs_all) {
    const double start = steady_s(), waited = comm_wait_s();
    const StepResult result = proof_.take(step, run_.steps->staging(), [&] {
      return runner_.run(
          step, costs_all || interrupt_.signal() != 0, world_.leads() && clock_.is_due(start),
          proof_.before_update(step, histograms_.before_update(step, runner_.scaler().scale())));
    });
    step_s_ = steady_s() - start;
    comm_wait_s_ = comm_wait_s() - waited;
    if (totals_.first_step_s == 0) {
      totals_.first_step_s = steady_s() - run_.options.start_s;
      if (world_.leads()) {
        totals_.peak_flops =
            world_.size() * run_.backend.peak_flops(precision_policy(config_.precision).storage,
                                                    session_.pool().num_threads());
      }
    } else {
      totals_.train_s += step_s_;  // the first step warms caches; it does not count for the mean speed
      totals_.train_targets += result.targets;
    }
    count_ += result.targets;
    ++totals_.num_steps;
    return result;
  }

  double comm_wait_s() const { return world_.comms() != nullptr ? wait_time_s(*world_.comms()) : 0; }

  StepRecord record_of(int64_t step, const StepResult& result) {
    StepRecord record;
    record.step = step;
    record.epoch = result.epoch;
    record.loss = static_cast<float>(result.loss);
    record.lr = static_cast<float>(learning_rate(config_.train, step));
    record.grad_norm = static_cast<float>(result.grad_norm);
    record.more = result.group_norms;
    record.more.insert(record.more.end(), result.metrics.begin(), result.metrics.end());
    record.loss_scale = static_cast<float>(result.loss_scale);
    record.unit = unit_of(config_.model);
    record.count = count_;
    record.per_s = static_cast<double>(result.targets) / step_s_;
    record.step_ms = step_s_ * 1e3;
    record.data_wait_ms = result.data_wait_s * 1e3;
    record.comm_wait_ms = comm_wait_s_ * 1e3;
    record.rss_bytes = rss_bytes();
    run_.figures.add_to(record, session_, steady_s());
    if (totals_.peak_flops > 0) record.mfu = batch_flops(run_, result.samples) / step_s_ / totals_.peak_flops;
    return record;
  }

  // True where it is the best so far in what checkpoint.best names.
  bool add_evaluation(StepRecord& record) {
    const Evaluation evaluation = evaluate_run(run_, record);
    return watch_.add(record.step, evaluation.last.all.loss, evaluation.loss_of(config_.checkpoint.best));
  }

  // Of the weights that training begins with. It is in the events; metrics have a row for each step.
  void evaluate_start() {
    StepRecord record;
    evaluate_run(run_, record);
  }

  bool ended_early(int64_t resumed) {
    if (resumed == 0 || !watch_.is_out_of_patience()) return false;
    journal_.message(fmt::format(
        "{}: ended at step {}, after {} without a better eval_loss; raise train.patience to go on",
        directory_.path().string(), resumed, count_of(watch_.in_vain(), "evaluation")));
    return true;
  }

  void tell_early_end(int64_t step) {
    const std::string what =
        watch_.best()
            ? fmt::format("{} without a better eval_loss than {} of step {}",
                          count_of(watch_.in_vain(), "evaluation"), format_loss(watch_.best()->loss),
                          watch_.best()->step)
            : fmt::format("{} without a finite eval_loss", count_of(watch_.in_vain(), "evaluation"));
    journal_.event("early_stop", what,
                   {{"step", step}, {"best_step", watch_.best() ? watch_.best()->step : 0}});
    journal_.message(fmt::format("ends at step {}: {} (train.patience)", step, what));
  }

  CheckpointMeta meta_of(const StepRecord& record) {
    CheckpointMeta meta = checkpoint_meta(config_, world_.at().shape, record, runner_, run_.steps->loader(),
                                          run_.data_fingerprint);
    meta.hardware = run_.hardware;
    meta.scalars["evaluations"] = watch_.state();
    meta.metrics.update(clock_.state(steady_s()));
    return meta;
  }

  // False where it is not saved, because weights are not finite.
  bool save(CheckpointWriter& writer, const StepRecord& record, bool may_be_async, bool only_finite,
            bool best = false) {
    CheckpointMeta meta = meta_of(record);
    meta.is_best = best;
    // The staging memory is that save's until then.
    if (!session_.shares_memory()) saving([&] { writer.wait(); });
    const StateViews state = state_views(session_, run_.steps->staging());
    if (only_finite && !world_.all(is_finite(session_, state.views), "weights")) {
      journal_.message(fmt::format("warning: step {} is not saved, its weights are not finite", record.step));
      return false;
    }
    proof_.require_same_replicas(record.step);
    store_->before_save(record.step);
    saving([&] {
      writer.save(meta, state.views, may_be_async ? run_.steps->staging() : std::span<std::byte>{});
    });
    divergence_.add_save(record.step);
    clock_.begin_save(steady_s());
    return true;
  }

  // A checkpoint that cannot be written ends the run, and is an event of its own.
  template <typename Work>
  void saving(Work&& work) {
    const PlacedState saves(PlaceState::Saving);
    try {
      work();
    } catch (const IoError& error) {
      journal_.event("checkpoint_failed", error.what(), {{"saved", divergence_.saved()}});
      throw;
    }
  }

  void check_diverged(const StepResult& result, int64_t step, bool last) {
    divergence_.add_step(result);
    const int64_t lost = divergence_.lost_steps();
    if (lost == 1) {
      lost_batch_ = batch_facts(run_.steps->loader(), result);
      lost_batch_["since"] = step;
      journal_.message(fmt::format("warning: step {} was skipped, its {} not finite", step,
                                   std::isfinite(result.loss) ? "gradients are" : "loss is"));
    }
    if (lost >= Divergence::kPatience || (lost > 0 && last)) throw_diverged(step);
  }

  [[noreturn]] void throw_diverged(int64_t step) {
    const std::string what = divergence_.lost_steps() == 0
                                 ? std::string("the last step's weights are not finite")
                                 : fmt::format("no finite loss or gradients for {} up to step {}",
                                               count_of(divergence_.lost_steps(), "step"), step);
    const std::filesystem::path good = directory_.checkpoints() / checkpoint_name(divergence_.good());
    nlohmann::json fields = {{"step", step}, {"good_step", divergence_.good()}};
    if (divergence_.lost_steps() > 0) fields.update(lost_batch_);
    journal_.event("diverged", what, fields);
    throw TrainError("{}: diverged: {}; lower train.lr or set train.clip, and {}", directory_.path().string(),
                     what,
                     divergence_.good() > 0
                         ? fmt::format("go on from the last good checkpoint with --resume-from-checkpoint {}",
                                       good.string())
                     : divergence_.saved() > 0
                         ? fmt::format("go on from a checkpoint before step {}, which gives no finite loss",
                                       divergence_.saved())
                         : std::string("start again"));
  }

  // By the thread that writes checkpoints, when one is done: the event's time is the commit's.
  void tell_save(const SaveReport& report) {
    journal_.event("checkpoint", report.directory.filename().string(),
                   {{"step", report.step},
                    {"bytes", report.bytes},
                    {"snapshot_s", report.snapshot_s},
                    {"write_s", report.write_s}});
    store_->on_saved(report);
  }

  void report_saves(CheckpointWriter& writer) {
    saving([&] {
      for (const SaveReport& report : writer.poll()) {
        clock_.end_save(report);
        if (!report.warning.empty()) journal_.message("warning: " + report.warning);
      }
    });
    store_->tell();
  }

  ExitCode interrupted(CheckpointWriter& writer, int64_t saved) {
    saving([&] { writer.wait_committed(); });
    report_saves(writer);
    tell_interrupted(run_, interrupt_, saved);
    return ExitCode::Interrupted;
  }

  OpenRun& run_;
  const InterruptListener& interrupt_;
  const Config& config_;
  const World& world_;
  Session& session_;
  StepRunner& runner_;
  const RunDirectory& directory_;
  Journal& journal_;
  StoreBehind* store_ = nullptr;  // while there are steps
  std::string changed_;           // keys of the config since the checkpoint; empty where none have
  StepRecord last_;
  int64_t count_ = 0;                    // tokens or samples trained on
  double step_s_ = 0, comm_wait_s_ = 0;  // of the last step
  RunTotals totals_;
  Divergence divergence_;
  LossWatch loss_watch_;
  TensorHistograms histograms_;
  nlohmann::json lost_batch_;  // the first of those without a finite loss or gradients
  EvalWatch watch_;
  SaveClock clock_;
  RunBudget budget_;
  StateProof proof_;
  std::optional<MemoryCopies> copies_;
};

}  // namespace

ExitCode train(const Config& config, const Backend& backend, const TrainOptions& options) {
  const InterruptListener interrupt;  // first: a signal while the step is compiled counts too
  // One process a node asks; the others hear of a notice with the step's norm.
  const bool asks = options.world.local_rank == 0;
  const spot::Watcher watcher(asks ? config.spot : SpotConfig(),
                              {[&](const spot::Notice& notice) { interrupt.give_notice(notice); },
                               [](const std::string& line) { fmt::print(stderr, "{}\n", line); }});
  use_storage(storage_options(config));
  if (config.parallel.tls && backend.name != "cpu")  // device: auto has found a GPU
    throw ConfigError("parallel.tls: NCCL does not encrypt what GPUs send; use false, and a private network");
  const auto train_in = [&](const World& world) {
    const auto while_waiting = [&interrupt] {
      if (interrupt.signal() != 0) throw Interruption("interrupted");
    };
    check_start(config, options, world, while_waiting);
    OpenRun run = open_run(config, backend, options, world, while_waiting);
    return Trainer(run, interrupt).run();
  };
  return run_in_world(config, options.world, train_in, [&] {
    if (interrupt.signal() != 0) throw Interruption("interrupted before all ranks had come; nothing is lost");
  });
}

}  // namespace tandem
