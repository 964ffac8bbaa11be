#include "tandem/train/journal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tandem/base/clipped.h"
#include "tandem/base/system.h"
#include "tandem/comm/places/place_page.h"
#include "tandem/config/print.h"
#include "tandem/http/url.h"
#include "tandem/train/run_data.h"
#include "tandem/train/sinks.h"

namespace tandem {
namespace {

// As services are told it: what lets others speak in the user's name stays here.
std::string for_others(nlohmann::json config) {
  if (config.contains("log") && !config["log"].value("webhook", "").empty())
    config["log"]["webhook"] = http::host_of(config["log"]["webhook"]);
  return config.dump();
}

std::string launchers_places() {
  const PlacePage* page = place_page();
  return page != nullptr ? page->read_board() : "";
}

}  // namespace

Journal::Journal(const std::filesystem::path& run_dir, const Config& config, int rank, int num_ranks)
    : run_dir_(run_dir),
      config_(config),
      rank_(rank),
      num_ranks_(num_ranks),
      log_(run_dir, rank, config.train.steps) {
  if (rank != 0) return;
  events_.emplace(run_dir);
  watch_.emplace(run_dir, config.train.steps, num_ranks);
  watch_->set_state("starting");
  if (!config.log.webhook.empty()) webhook_.emplace(config.log.webhook, run_dir);
}

void Journal::begin_steps(int64_t resumed, CsvColumns columns, bool own_run) {
  if (num_ranks_ > 1 && (config_.log.jsonl || !config_.log.prometheus.empty())) {
    const std::string who = fmt::format(R"(,"node":"{}","pid":{}}})", hostname(), ::getpid());
    const auto row = [who](const StepRecord& record) {
      std::string text = rank_row(record);
      text.pop_back();
      return text + who;
    };
    own_rows_.emplace(run_dir_ / "logs" / fmt::format("rank-{}.jsonl", rank_), row, /*expected=*/false);
    own_rows_->resume(resumed);
  }
  if (!events_) return;
  const auto tell = [this](const std::string& sentence) {
    message("warning: " + sentence);
    event("sink", sentence);
  };
  metrics_.emplace(make_sinks(config_.log, {.run_dir = run_dir_,
                                            .columns = columns,
                                            .unit = unit_of(config_.model),
                                            .expected = own_run,
                                            .num_ranks = num_ranks_,
                                            .config = to_yaml(config_),
                                            .config_json = for_others(to_json(config_)),
                                            .tell = tell,
                                            .places = launchers_places}),
                   resumed);
  for (const std::string& problem : metrics_->problems()) {
    message("warning: " + problem);
    event("damaged_metrics", problem, {{"step", resumed}});
  }
  progress_.emplace(config_.train.steps);
  if (own_run) watch_->add_save(resumed);
  watch_->set_state("running");
}

void Journal::event(std::string_view type, std::string_view message, const nlohmann::json& fields) {
  if (!events_) return;
  const std::string text = clipped(message);
  events_->write(type, text, fields);
  note_state(type, text, fields);
  // What a run that diverges ends with was told already.
  if (webhook_ && Webhook::is_told(type) && !(type == "failure" && diverged_))
    webhook_->tell(type, text, fields);
}

// The thread that writes checkpoints tells of them, all else is told by the one that trains.
void Journal::note_state(std::string_view type, const std::string& message, const nlohmann::json& fields) {
  if (type == "checkpoint") return watch_->add_save(fields.value("step", int64_t{0}));
  if (type == "start") watch_->begin(fields.value("device", ""));
  if (type == "end" || type == "early_stop") watch_->set_state("done");
  if (type == "interrupt") watch_->set_state("interrupted", message);
  if (type == "budget") watch_->set_state("interrupted", "train.budget: " + message);
  if (type == "diverged") {
    diverged_ = true;
    watch_->set_state("diverged", message);
  }
  if (type == "failure" && !diverged_) watch_->set_state("failed", message);
}

void Journal::event(const EvalRecord& eval) {
  if (events_) events_->write(eval);
}

void Journal::message(std::string_view text) {
  const std::string line = clipped(text);
  log_.line(line);
  if (!events_) return;
  if (progress_) {
    progress_->message(line);
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

void Journal::log(std::string_view text) { log_.line(clipped(text)); }

void Journal::step(const StepRecord& record) {
  tell_what("host");
  tell_busy(record.step, (record.step_ms - record.comm_wait_ms) / 1e3);
  log_.step(record);
  if (own_rows_) own_rows_->write(record);
  if (metrics_) metrics_->write(record);
  if (progress_) progress_->update(record);
  if (watch_) watch(record);
}

void Journal::watch(const StepRecord& record) {
  const auto warn = [this](const std::string& sentence) {
    message("warning: " + sentence);
    event("sink", sentence);
  };
  if (watch_->add(record)) {
    if (progress_) progress_->set_note(watch_->slowest());
    if (const auto news = watch_->take_straggler()) {
      const std::string what = fmt::format("rank {} is slow: busy {:.0f} ms a step, the others {:.0f}",
                                           news->rank, news->busy_ms, news->others_ms);
      message("warning: " + what);
      event("straggler", what,
            {{"step", record.step},
             {"rank", news->rank},
             {"busy_ms", news->busy_ms},
             {"others_ms", news->others_ms}});
    }
  }
  if (const std::string trouble = watch_->take_trouble(); !trouble.empty()) warn(trouble);
  if (!webhook_) return;
  for (const std::string& trouble : webhook_->take_troubles()) warn(trouble);
}

void Journal::histograms(const std::vector<Histogram>& all) {
  if (metrics_) metrics_->write_histograms(all);
}

void Journal::sync() {
  if (metrics_) metrics_->sync();
}

void Journal::finish() {
  if (metrics_) metrics_->finish();
}

}  // namespace tandem
