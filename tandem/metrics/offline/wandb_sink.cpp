#include "tandem/metrics/offline/wandb_sink.h"

#include <fmt/chrono.h>

#include <ctime>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/metrics/offline/run_name.h"
#include "tandem/metrics/offline/wandb_log.h"
#include "tandem/metrics/step_sequence.h"
#include "tandem/metrics/tensorboard/tensorboard_event.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kOffline = "offline-run-", kOnline = "run-";
constexpr size_t kIdLength = 8;

struct KeptRecords {
  size_t bytes = 0;
  int64_t records = 0;
  double start_s = 0;
  StepSequence steps;
  bool damaged = false;
};

// What of a file a run keeps that goes on behind step `last`. That a run has ended is true no more.
KeptRecords read_kept(const fs::path& path, int64_t last) {
  KeptRecords kept;
  if (!is_there(path) || regular_file_bytes(path) == 0) return kept;
  const MappedFile file(path);
  wandb::LogReader reader(
      std::string_view(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()));
  while (const auto bytes = reader.next()) {
    const auto record = wandb::read_record(*bytes);
    const bool row = record && record->kind == wandb::Record::Kind::History;
    if (!record || (row && record->step <= kept.steps.last())) {
      kept.damaged = true;
      break;
    }
    if (record->kind == wandb::Record::Kind::Exit || (row && record->step > last)) break;
    if (record->kind == wandb::Record::Kind::Run) kept.start_s = record->start_s;
    if (row) kept.steps.add(record->step);
    kept.records = record->number;
    kept.bytes = reader.position();
  }
  kept.damaged = kept.damaged || (reader.damaged() && kept.steps.last() < last);
  return kept;
}

}  // namespace

WandbSink::WandbSink(const SinkOptions& options, bool online)
    : folder_(options.run_dir / "wandb"),
      name_(run_name(options.run_dir)),
      config_(options.config_json.empty() ? "{}" : options.config_json),
      expected_(options.expected),
      online_(online) {}

std::string WandbSink::resume(int64_t last) {
  fs::path directory = newest_named(folder_, kOffline, "");
  if (directory.empty()) directory = newest_named(folder_, kOnline, "");
  if (directory.empty()) {
    id_ = random_id(kIdLength, "abcdefghijklmnopqrstuvwxyz0123456789");
    const std::time_t now = std::time(nullptr);
    directory =
        folder_ / fmt::format("{}{:%Y%m%d_%H%M%S}-{}", online_ ? kOnline : kOffline, fmt::gmtime(now), id_);
  } else {
    const std::string name = directory.filename().string();
    id_ = name.substr(name.rfind('-') + 1);
  }
  make_directories(directory / "files");
  const fs::path path = directory / fmt::format("run-{}.wandb", id_);
  const KeptRecords kept = read_kept(path, last);
  const std::string copy =
      kept.damaged ? keep_damaged_copy(path, "wandb-was").filename().string() : std::string();
  std::error_code ignored;
  fs::remove(fs::path(path.string() + ".synced"), ignored);  // what comes now W&B has not seen
  records_ = kept.records;
  last_ = {};
  if (last == 0 || kept.steps.empty()) {
    file_ = GrowingFile(path, 0);
    begin_file();
  } else {
    start_s_ = kept.start_s;
    file_ = GrowingFile(path, static_cast<int64_t>(kept.bytes));
    add(wandb::config_record(++records_, config_));
  }
  const auto missing = kept.steps.first_missing(last);
  if (kept.damaged) {
    return fmt::format("{}: was damaged; what can be read of it is kept, and the file as it was is {}; {}",
                       path.string(), copy,
                       missing ? fmt::format("step {} is lost", *missing) : "no step is lost");
  }
  return expected_ && missing ? lacks(path, *missing, last) : "";
}

wandb::RunFacts WandbSink::facts() const {
  wandb::RunFacts run;
  run.id = id_;
  run.project = from_environment("WANDB_PROJECT", "tandem");
  run.entity = from_environment("WANDB_ENTITY", "");
  run.name = from_environment("WANDB_NAME", name_);
  run.host = hostname();
  run.start_s = start_s_;
  run.config = config_;
  return run;
}

void WandbSink::begin_file() {
  file_.append(wandb::file_head());
  records_ = 0;
  start_s_ = unix_s();
  add(wandb::run_record(++records_, facts()));
}

void WandbSink::add(const std::string& record) { file_.append(wandb::framed(record, file_.size())); }

void WandbSink::write(const StepRecord& record) {
  add(wandb::history_record(records_ + 1, record, tensorboard::wall_time(record.time), start_s_));
  ++records_;
  last_ = record;
}

// W&B shows it in its table of runs.
void WandbSink::add_summary() {
  if (last_.step == 0) return;
  add(wandb::summary_record(records_ + 1, last_));
  ++records_;
  last_.step = 0;
}

void WandbSink::sync() {
  add_summary();
  file_.sync();
}

void WandbSink::finish() {
  add_summary();
  add(wandb::exit_record(++records_, unix_s() - start_s_));
  add(wandb::final_record(++records_));
  file_.sync();
}

}  // namespace tandem
