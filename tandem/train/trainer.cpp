#include "tandem/train/trainer.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/mend.h"
#include "tandem/checkpoint/reader.h"
#include "tandem/checkpoint/writer.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/config/enum_names.h"
#include "tandem/data/fingerprint.h"
#include "tandem/metrics/summary.h"
#include "tandem/train/checkpoint_meta.h"
#include "tandem/train/config_changes.h"
#include "tandem/train/device_figures.h"
#include "tandem/train/device_threads.h"
#include "tandem/train/divergence.h"
#include "tandem/train/evaluate.h"
#include "tandem/train/interrupt.h"
#include "tandem/train/journal.h"
#include "tandem/train/lr_schedule.h"
#include "tandem/train/model_state.h"
#include "tandem/train/run_data.h"
#include "tandem/train/run_session.h"
#include "tandem/train/world.h"

namespace tandem {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Trainer {
 public:
  Trainer(const Config& config, const Backend& backend, const TrainOptions& options, const World& world,
          const InterruptListener& interrupt)
      : interrupt_(interrupt),
        config_(config),
        backend_(backend),
        options_(options),
        world_(world),
        figures_(world.leads() ? DeviceFigures(backend, world.comms())
                               : DeviceFigures()),  // sensors: rank 0's
        run_(config, backend, options.model, world,
             [&interrupt] {
               if (interrupt.signal() != 0) throw Interruption("interrupted");
             }),
        session_(run_.session()),
        loader_(run_.loader()),
        runner_(run_.runner()),
        data_fingerprint_(fingerprint(run_.train_data())),
        hardware_(backend.name_device
                      ? fmt::format("{}, {}", backend.name_device(world.comms()), hardware_description())
                      : hardware_description()),
        restored_(restore_state()),
        directory_(make_directory()),
        journal_(directory_.path(), config, world.at().rank(), world.size()) {}

  ExitCode run() {
    journal_.log(fmt::format("rank {} of {} on {}, process {}", world_.at().rank(), world_.size(), hostname(),
                             ::getpid()));
    try {
      return run_steps();
    } catch (const std::exception& error) {
      journal_.log(fmt::format("error: {}", error.what()));
      throw;
    }
  }

 private:
  ExitCode run_steps() {
    const int64_t resumed = start_state();
    if (world_.leads()) mend();
    if (resumed >= config_.train.steps) {
      journal_.message(
          fmt::format("{}: already trained to step {}; raise train.steps to go on, or start over with "
                      "--resume-from-checkpoint none",
                      directory_.path().string(), resumed));
      // It may have been killed after its last checkpoint and before its end.
      if (world_.leads() && !std::filesystem::exists(directory_.path() / "summary.json")) finish();
      return ExitCode::Done;
    }
    if (world_.leads()) {
      directory_.write_plan(session_.step());
      directory_.write_config(config_, changed_);  // last: a config without a plan is not a run's
    }
    journal_.begin_steps(resumed, figures_.columns(), goes_on_here());
    CheckpointWriter writer(directory_.checkpoints(), static_cast<int>(config_.checkpoint.keep),
                            &session_.pool(), save_group(),
                            [this](const SaveReport& report) { tell_save(report); });
    try {
      return take_steps(writer, resumed);
    } catch (const CommError&) {
      writer.close();  // peers leave a rank whose save has failed, and it may hear of that first
      throw;
    }
  }

  ExitCode take_steps(CheckpointWriter& writer, int64_t resumed) {
    world_.barrier("checkpoints folder");  // rank 0 has cleared it
    announce(resumed);
    if (world_.leads()) std::filesystem::remove(directory_.path() / "summary.json");  // of a shorter run
    // Going back to an older checkpoint makes it the newest: whatever happens next, `latest` is on this
    // branch.
    if (options_.resume.kind == ResumeFrom::Kind::Path)
      save(writer, last_, /*may_be_async=*/false, /*only_finite=*/false);
    if (!world_.all(interrupt_.signal() == 0, "start")) return interrupted(writer, resumed);

    divergence_ = Divergence(resumed);
    for (int64_t step = resumed + 1; step <= config_.train.steps; ++step) {
      const StepResult result = timed_step(step);
      StepRecord record = record_of(step, result);
      const bool last = step == config_.train.steps;
      if (config_.train.eval_every > 0 && (step % config_.train.eval_every == 0 || last))
        add_evaluation(record);
      journal_.step(record);
      last_ = record;
      if (!result.applied) {
        journal_.event("overflow", fmt::format("step {} skipped: gradients were not finite", step),
                       {{"step", step}});
      }
      check_diverged(result, step, last);
      report_saves(writer);
      // After the last step there is nothing to interrupt. A lone rank sees a signal of this very step;
      // several agree on those that had come when the step's norm was summed.
      const bool stop = !last && (world_.size() > 1 ? result.stop : interrupt_.signal() != 0);
      const bool due = config_.checkpoint.every > 0 && (step % config_.checkpoint.every == 0 || last);
      if ((due || stop) && divergence_.lost_steps() == 0) {
        journal_.sync();
        const bool only_one = config_.checkpoint.keep == 1;  // which this one pushes out
        if (!save(writer, record, !stop, only_one || last) && last) throw_diverged(step);
      }
      if (stop) {
        writer.wait_committed();
        return interrupted(writer, divergence_.saved());
      }
    }
    writer.wait_committed();
    report_saves(writer);
    if (world_.leads()) finish();
    journal_.log(fmt::format("trained to step {}", last_.step));
    return ExitCode::Done;
  }

  // Before the run directory is touched: what cannot be gone on from leaves everything there as it was.
  Latest restore_state() {
    if (world_.leads()) {
      lock_.take(options_.run_dir);
      StoreRef(options_.run_dir / "checkpoints")->put_back_replaced();
    }
    session_.initialize(static_cast<uint64_t>(config_.train.seed));
    Latest found;
    switch (options_.resume.kind) {
      case ResumeFrom::Kind::None: break;
      case ResumeFrom::Kind::Path: found = {restore(session_, options_.resume.path), {}}; break;
      case ResumeFrom::Kind::Latest:
        found = restore_latest(session_, options_.run_dir / "checkpoints", world_);
        break;
    }
    if (found.manifest) require_resumable(*found.manifest, config_);  // it may be an older one
    return found;
  }

  // Rank 0 makes it when every rank has read what it needs from an earlier one.
  RunDirectory make_directory() {
    world_.barrier("run directory");
    std::optional<RunDirectory> made;
    if (world_.leads()) {
      made.emplace(options_.run_dir, options_.resume);
      lock_.take(made->path());  // if it was not there before, or was moved
    }
    world_.barrier("run directory");
    return made ? *made : RunDirectory(options_.run_dir);
  }

  SaveGroup save_group() const {
    if (world_.size() == 1) return {};
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    SaveGroup group;
    group.rank = world_.at().rank();
    group.world_size = world_.size();
    group.token = fmt::format("{:x}", world_.from_lead(static_cast<int64_t>(now), "save token"));
    group.timeout = connect_options(config_).timeout;
    group.check_peers = [this] { world_.check(); };
    return group;
  }

  // Returns the step to go on from: 0 for a fresh start.
  int64_t start_state() {
    for (const Skipped& bad : restored_.skipped) {
      journal_.message(fmt::format("warning: skipped a bad checkpoint: {}", bad.reason));
      journal_.event("bad_checkpoint", bad.reason, {{"directory", bad.directory.string()}});
    }
    if (!restored_.manifest) return 0;
    const Manifest& manifest = *restored_.manifest;
    last_ = restore_meta(manifest.meta, runner_, loader_);
    count_ = last_.count;
    const std::vector<ConfigChange> changes = config_changes(manifest.meta, config_);
    for (const std::string& change : changes_of_data(manifest.meta, changes, config_, data_fingerprint_)) {
      journal_.message("warning: " + change);
      journal_.event("warning", change);
    }
    journal_.event("resume", fmt::format("from step {}", last_.step),
                   {{"step", last_.step}, {"checkpoint", manifest.directory.string()}});
    tell_changes(changes);
    return last_.step;
  }

  // Whether the checkpoint is of this very directory, and not of another run's.
  bool goes_on_here() const {
    if (!restored_.manifest) return false;
    std::error_code ignored;
    return std::filesystem::equivalent(restored_.manifest->directory.parent_path(), directory_.checkpoints(),
                                       ignored);
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
    const Latest elsewhere{std::nullopt, {}};  // a save will say which is the newest
    const bool goes_on = options_.resume.kind == ResumeFrom::Kind::Latest;
    for (const std::string& trouble :
         mend_checkpoints(directory_.checkpoints(), static_cast<int>(config_.checkpoint.keep),
                          goes_on ? restored_ : elsewhere)) {
      journal_.message("warning: " + trouble);
    }
  }

  void announce(int64_t resumed) {
    const CompiledStep& step = session_.step();
    const std::string what =
        fmt::format("{} parameters, {}, recompute {}, {} planned, {}, {}",
                    format_count(static_cast<double>(step.num_params)), name_of(config_.precision),
                    recompute_name(step.recompute), format_bytes(total_bytes(step.sizes)),
                    count_of(session_.pool().num_threads(), "thread"), backend_.description);
    journal_.message(fmt::format("{}: {}", directory_.path().string(), what));
    if (const MeshShape& mesh = world_.at().shape; mesh.world() > 1) {
      journal_.message(fmt::format("{} ranks: data {} ({}), tensor {}, pipeline {}; the plan is rank 0's",
                                   mesh.world(), mesh.data, name_of(config_.parallel.strategy), mesh.tensor,
                                   mesh.pipeline));
    }
    if (!directory_.moved_to().empty()) {
      journal_.message(fmt::format("an earlier run was moved to {}", directory_.moved_to().string()));
    }
    if (resumed > 0) journal_.message(fmt::format("resumed from step {}", resumed));
    if (keeps_end_apart(config_.data)) {
      const int64_t held_out = run_.eval_data().num_samples();
      journal_.message(
          fmt::format("{}: the last {} of {} windows are kept for evaluation, the others trained on (with "
                      "another set as data.eval, all)",
                      config_.data.train, held_out, held_out + run_.train_data().num_samples()));
    }
    if (config_.threads > num_cores()) {
      journal_.message(fmt::format("warning: threads is {}, but this machine has {}; threads=0 takes as many",
                                   config_.threads, count_of(num_cores(), "core")));
    }
    if (const auto floor = run_.eval_data().loss_floor())
      journal_.message(fmt::format("no model can do better than a loss of {:.4f}", *floor));
    if (config_.precision == Precision::Fp8) {
      const int64_t matrices = matrices_in_fp8(step);
      journal_.message(matrices > 0 ? fmt::format("{} matrices in 8 bits", matrices)
                                    : "warning: no product is done in 8 bits: sizes and rows a pass must be "
                                      "multiples of 16");
    }
    if (config_.model.has(kStages) && config_.model.norm == ImageNorm::Batch && config_.accumulation() > 1) {
      journal_.message(
          "warning: BatchNorm sees one micro-batch at a time; with accumulation its statistics are noisier "
          "(model.norm=group avoids that)");
    }
    journal_.event("start", what, {{"step", resumed}, {"device", backend_.name}});
  }

  StepResult timed_step(int64_t step) {
    const double start = now_s();
    const StepResult result = runner_.run(step, interrupt_.signal() != 0);
    step_s_ = now_s() - start;
    if (first_step_s_ == 0) {
      first_step_s_ = now_s() - options_.start_s;
      if (world_.leads()) {
        peak_flops_ = world_.size() * backend_.peak_flops(precision_policy(config_.precision).storage,
                                                          session_.pool().num_threads());
      }
    } else {
      train_s_ += step_s_;  // the first step warms caches; it does not count for the mean speed
      train_targets_ += result.targets;
    }
    count_ += result.targets;
    ++num_steps_;
    return result;
  }

  StepRecord record_of(int64_t step, const StepResult& result) {
    StepRecord record;
    record.step = step;
    record.epoch = result.epoch;
    record.loss = static_cast<float>(result.loss);
    record.lr = static_cast<float>(learning_rate(config_.train, step));
    record.grad_norm = static_cast<float>(result.grad_norm);
    record.loss_scale = static_cast<float>(result.loss_scale);
    record.unit = unit_of(config_.model);
    record.count = count_;
    record.per_s = static_cast<double>(result.targets) / step_s_;
    record.step_ms = step_s_ * 1e3;
    record.data_wait_ms = result.data_wait_s * 1e3;
    record.rss_bytes = rss_bytes();
    figures_.add_to(record, session_, now_s());
    if (peak_flops_ > 0) record.mfu = model_flops() / step_s_ / peak_flops_;
    return record;
  }

  double model_flops() const {
    return static_cast<double>(session_.step().model_flops) *
           static_cast<double>(config_.accumulation() * config_.parallel.data);
  }

  void add_evaluation(StepRecord& record) {
    const EvalResult result = evaluate(session_, run_.eval_loader(), world_);
    record.eval_loss = static_cast<float>(result.loss);
    if (!config_.model.is_language_model()) record.eval_accuracy = static_cast<float>(result.accuracy);
    journal_.event(EvalRecord{record.step, *record.eval_loss, record.eval_accuracy});
    journal_.message(record.eval_accuracy
                         ? fmt::format("step {}: eval loss {}, accuracy {:.4f}", record.step,
                                       format_loss(result.loss), result.accuracy)
                         : fmt::format("step {}: eval loss {}", record.step, format_loss(result.loss)));
  }

  // False where it is not saved, because weights are not finite.
  bool save(CheckpointWriter& writer, const StepRecord& record, bool may_be_async, bool only_finite) {
    CheckpointMeta meta =
        checkpoint_meta(config_, world_.at().shape, record, runner_, loader_, data_fingerprint_);
    meta.hardware = hardware_;
    if (!session_.shares_memory()) writer.wait();  // the staging memory is that save's until then
    const StateViews state = state_views(session_, run_.staging());
    if (only_finite && !world_.all(is_finite(session_, state.views), "weights")) {
      journal_.message(fmt::format("warning: step {} is not saved, its weights are not finite", record.step));
      return false;
    }
    writer.save(meta, state.views, may_be_async ? run_.staging() : std::span<std::byte>{});
    divergence_.add_save(record.step);
    return true;
  }

  void check_diverged(const StepResult& result, int64_t step, bool last) {
    divergence_.add_step(result);
    const int64_t lost = divergence_.lost_steps();
    if (lost == 1) {
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
    journal_.event("diverged", what, {{"step", step}, {"good_step", divergence_.good()}});
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
  }

  void report_saves(CheckpointWriter& writer) {
    for (const SaveReport& report : writer.poll()) {
      if (!report.warning.empty()) journal_.message("warning: " + report.warning);
    }
  }

  ExitCode interrupted(CheckpointWriter& writer, int64_t saved) {
    report_saves(writer);
    const int signal = interrupt_.signal();
    journal_.event("interrupt",
                   signal == SIGINT    ? "Ctrl-C"
                   : signal == SIGTERM ? "SIGTERM"
                   : signal == SIGHUP  ? "SIGHUP"
                                       : "another rank was interrupted",
                   {{"step", saved}});
    const bool same_command = options_.resume.kind == ResumeFrom::Kind::Latest;
    journal_.message(saved == 0 ? "interrupted before anything was saved: start again to begin"
                                : fmt::format("interrupted; step {} is saved in {}: start again{} to go on",
                                              saved, directory_.checkpoints().string(),
                                              same_command ? "" : " with --resume-from-checkpoint latest"));
    return ExitCode::Interrupted;
  }

  void finish() {
    Summary summary;
    summary.steps = last_.step;
    summary.steps_this_start = num_steps_;
    summary.final_loss = last_.loss;
    summary.eval_loss = last_.eval_loss;
    summary.eval_accuracy = last_.eval_accuracy;
    summary.loss_floor = run_.eval_data().loss_floor();
    summary.best_accuracy = run_.eval_data().best_accuracy();
    summary.unit = unit_of(config_.model);
    summary.per_s = train_s_ > 0 ? static_cast<double>(train_targets_) / train_s_ : last_.per_s;
    const double flops_per_target = model_flops() / static_cast<double>(std::max<int64_t>(1, last_targets()));
    if (peak_flops_ > 0) summary.mfu = summary.per_s * flops_per_target / peak_flops_;
    summary.peak_rss_bytes = peak_rss_bytes();
    figures_.measure(session_);
    summary.peak_device_bytes = figures_.peak_bytes();
    summary.library_bytes = figures_.library_bytes();
    summary.hardware = hardware_;
    for (int i = 0; i < kNumArenas; ++i) {
      summary.planned_bytes.emplace_back(arena_name(static_cast<Arena>(i)),
                                         session_.step().sizes[static_cast<size_t>(i)]);
    }
    summary.wall_s = now_s() - options_.start_s;
    summary.first_step_s = first_step_s_;
    summary.world_size = world_.size();
    summary.strategy = std::string(name_of(config_.parallel.strategy));
    summary.mesh = world_.at().shape;
    summary.precision = std::string(name_of(config_.precision));
    write_summary(directory_.path(), summary);
    journal_.event("end", fmt::format("trained to step {}", last_.step), {{"step", last_.step}});
    journal_.end_progress();
    std::printf("%s\n", summary_table(summary, directory_.path()).c_str());
    std::fflush(stdout);
    std::clearerr(stdout);  // the run is done, whether somebody reads this or not; summary.json has it
  }

  int64_t last_targets() const { return config_.train.batch * run_.train_data().spec().num_targets(); }

  const InterruptListener& interrupt_;
  const Config& config_;
  const Backend& backend_;
  const TrainOptions& options_;
  const World& world_;
  DeviceFigures figures_;  // of rank 0; first, so that the sensors are found while the step is compiled
  RunSession run_;
  Session& session_;
  Loader& loader_;
  StepRunner& runner_;
  const std::string data_fingerprint_;
  const std::string hardware_;  // the rank's GPU, where it has one, and its machine
  RunLock lock_;                // of rank 0
  Latest restored_;
  RunDirectory directory_;
  Journal journal_;

  std::string changed_;  // keys of the config since the checkpoint; empty where none have
  StepRecord last_;
  int64_t count_ = 0;      // tokens or samples trained on
  int64_t num_steps_ = 0;  // in this process
  double step_s_ = 0, first_step_s_ = 0, train_s_ = 0, peak_flops_ = 0;
  int64_t train_targets_ = 0;
  Divergence divergence_;
};

// Before anything is compiled: whether there may be a run, or is one to go on with, and with this config.
void check_start(const Config& config, const TrainOptions& options, const World& world) {
  if (world.leads()) check_run_directory(options.run_dir);
  switch (options.resume.kind) {
    case ResumeFrom::Kind::None: return;
    case ResumeFrom::Kind::Path: return require_resumable(read_manifest(options.resume.path), config);
    case ResumeFrom::Kind::Latest: break;
  }
  const Latest newest = find_latest(options.run_dir / "checkpoints", Check::Sizes);
  if (newest.manifest) require_resumable(*newest.manifest, config);
}

}  // namespace

ExitCode train(const Config& config, const Backend& backend, const TrainOptions& options) {
  const InterruptListener interrupt;  // first: a signal while the step is compiled counts too
  const auto train_in = [&](const World& world) {
    check_start(config, options, world);
    return Trainer(config, backend, options, world, interrupt).run();
  };
  return run_in_world(config, train_in, [&] {
    if (interrupt.signal() != 0) throw Interruption("interrupted before all ranks had come; nothing is lost");
  });
}

}  // namespace tandem
