#include "tandem/train/storage/store_behind.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tandem/base/file.h"
#include "tandem/base/quantity.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/stores/claim.h"

namespace tandem {
namespace {

constexpr const char* kRunFile = "store.json";  // who this run is to its store

// Empty where the run has not written to a store yet.
std::string run_id(const std::filesystem::path& run_dir) {
  const std::filesystem::path path = run_dir / kRunFile;
  if (!is_there(path)) return {};
  const nlohmann::json content = nlohmann::json::parse(read_text(path), nullptr, false);
  if (!content.is_object() || !content.contains("run") || !content["run"].is_string())
    throw DataError("{}: damaged; remove it, and go on from the store's newest checkpoint", path.string());
  return content["run"].get<std::string>();
}

std::string make_run_id(const std::filesystem::path& run_dir) {
  std::string id = run_id(run_dir);
  if (!id.empty()) return id;
  std::random_device random;
  id = fmt::format("{:08x}{:08x}", random(), random());
  write_atomically(run_dir / kRunFile, nlohmann::json{{"run", id}}.dump() + "\n");
  return id;
}

// What no earlier checkpoint in the store is behind.
int64_t newest_sequence(const StoreRef& store) {
  const Latest latest = find_latest(store, Check::Sizes);
  const std::optional<Claim> claim = newest_claim(store);
  return std::max(latest.manifest ? latest.manifest->sequence : 0, claim ? claim->sequence : 0);
}

bool goes_on_from(const std::string& address, const TrainOptions& options) {
  if (options.resume.kind == ResumeFrom::Kind::Path) {
    const std::string from = options.resume.path.string();
    return from == address || from.starts_with(address + "/");
  }
  return options.resume.kind == ResumeFrom::Kind::Latest &&
         !find_latest(options.run_dir / "checkpoints", Check::Sizes).manifest;
}

// Another run that has claimed the store and that this one may follow. Rank 0 alone.
std::optional<Claim> earlier_owner(const StoreRef& store, const std::string& address,
                                   const TrainOptions& options) {
  store->make();
  const std::optional<Claim> claim = newest_claim(store);
  if (!claim) return std::nullopt;
  const bool fresh = options.resume.kind == ResumeFrom::Kind::None;  // the run directory will be another
  const std::string own = fresh ? std::string() : run_id(options.run_dir);
  if (claim->run == own) return std::nullopt;
  if (goes_on_from(address, options) || list_checkpoints(store).empty()) return claim;
  throw DataError(
      "{}: holds checkpoints of another run, {}; name another checkpoint.store, or go on from its newest "
      "with "
      "--resume-from-checkpoint {}",
      store->description(""), describe(*claim), store->description(""));
}

}  // namespace

void check_store(const Config& config, const TrainOptions& options, const World& world,
                 const std::function<void()>& while_waiting) {
  if (config.checkpoint.store.empty()) return;
  const StoreRef store(open_store(config.checkpoint.store));
  const AliveTimes times;
  std::optional<Claim> owner;
  std::optional<LifeWatch> watch;
  if (world.leads()) owner = earlier_owner(store, config.checkpoint.store, options);
  if (owner) watch.emplace(store, owner->run, times);
  // Look by look, so that no rank waits for another longer than for a look.
  for (bool first = true;; first = false) {
    const Life life = watch ? watch->look() : Life::Dead;
    if (world.leads() && life == Life::Alive) throw_alive(store, *owner);
    if (watch && first && life == Life::Unknown) {
      fmt::print(stderr, "{}: {} wrote there {} s ago; watching for up to {:.0f} s whether it lives\n",
                 store->description(""), describe(*owner), watch->age_s(), times.dead_s);
    }
    if (world.from_lead(static_cast<int64_t>(life == Life::Dead), "store's owner") != 0) return;
    if (while_waiting) while_waiting();
    std::this_thread::sleep_for(std::chrono::duration<double>(times.look_s));
  }
}

StoreBehind::StoreBehind(OpenRun& run, const SaveGroup& group)
    : run_(run), world_(run.world), address_(run.config.checkpoint.store) {
  if (address_.empty()) return;
  const StoreRef store(open_store(address_));
  std::string id;
  if (world_.leads()) {
    id = make_run_id(run.directory.path());
    newest_there_ = newest_sequence(store);
    // The claim is looked at after the newest, so that one that comes in between is not built upon.
    const std::optional<Claim> claim = newest_claim(store);
    // Whoever had it when this run began was dead by then.
    if (claim && claim->run != id && LifeWatch(store, claim->run).look() != Life::Dead)
      throw_alive(store, *claim);
    alive_ = std::make_unique<AliveSign>(open_store(address_), id,
                                         [this](const std::string& line) { run_.journal.log(line); });
    // Whoever wrote there before is to notice, and a restart of this run to find that it was there.
    if (!claim || claim->run != id) take_claim(store, id, newest_there_ + 1);
    try {
      tidy_store(store);  // after a kill behind the last upload there may be no other
    } catch (const Error& error) {
      run_.journal.log(fmt::format("the store was not tidied: {}", error.what()));
    }
  }
  const auto log = [this](const std::string& line) { run_.journal.log(line); };
  mirror_ = std::make_unique<RunMirror>(
      open_store(address_),
      MirrorOptions{run.directory.path(), world_.from_lead(id, "run"), world_.at().rank(), log});
  CheckpointUploader::Events events;
  events.progress = [this](int64_t step, int64_t done, int64_t total) {
    run_.journal.log(fmt::format("step {} on its way to the store: {} of {}", step, format_bytes(done),
                                 format_bytes(total)));
  };
  events.ended = [this](const UploadReport& report) { on_ended(report); };
  uploader_ = std::make_unique<CheckpointUploader>(store, id, static_cast<int>(run.config.checkpoint.keep),
                                                   group, run.steps->upload_memory(), std::move(events));
}

StoreBehind::~StoreBehind() = default;

std::string StoreBehind::new_token() const {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return fmt::format("{:x}", world_.from_lead(static_cast<int64_t>(now), "upload token"));
}

void StoreBehind::begin(CheckpointWriter& writer) {
  if (!uploader_) return;
  writer.go_on_behind(newest_there_);
  writer.set_on_written([this](WrittenPart written) {
    const std::lock_guard lock(mutex_);
    written_ = std::move(written);
  });
}

void StoreBehind::catch_up() {
  if (!uploader_) return;
  std::string name;
  const std::optional<Manifest>& restored = run_.restored.manifest;
  if (world_.leads() && restored && run_.goes_on_here() &&
      run_.options.resume.kind == ResumeFrom::Kind::Latest && restored->sequence >= newest_there_ &&
      !is_stored(restored->name))
    name = restored->name;
  name = world_.from_lead(name, "upload");
  if (!name.empty()) upload_again(name);
}

bool StoreBehind::is_stored(const std::string& name) const {
  const StoreRef store(open_store(address_));
  const std::vector<std::string> there = list_checkpoints(store);
  if (std::find(there.begin(), there.end(), name) == there.end()) return false;
  try {
    return read_manifest(store, name).sequence == read_manifest(run_.directory.checkpoints(), name).sequence;
  } catch (const DataError&) {  // damaged there: another try takes its place
    return false;
  }
}

std::string StoreBehind::best_local() const {
  if (run_.config.checkpoint.best == "none") return {};
  return StoreRef(run_.directory.checkpoints())->alias(kBest).value_or("");
}

void StoreBehind::upload_again(const std::string& name) {
  const std::string token = new_token();
  Manifest manifest = read_manifest(run_.directory.checkpoints(), name);
  UploadJob job{name, token, manifest.meta.step, {}, std::nullopt};
  for (size_t i = static_cast<size_t>(world_.at().rank()); i < manifest.files.size();
       i += static_cast<size_t>(world_.size())) {
    const std::string& file = manifest.files[i].name;
    job.files.push_back(
        {file, manifest.open(file), digested_ranges(manifest.tensors, file, manifest.digest_block)});
  }
  if (world_.leads()) {
    const std::lock_guard lock(mutex_);
    if (newest_local_.empty()) newest_local_ = name;  // not saved by this process
    job.is_best = name == best_local();
    job.manifest = std::move(manifest);
  }
  uploader_->begin(std::move(job));
}

void StoreBehind::before_save(int64_t step) {
  if (!uploader_) return;
  const bool free = world_.all(uploader_->idle(), "store");
  const std::lock_guard lock(mutex_);
  if (free) {
    wanted_.insert(step);
  } else {
    run_.journal.log(fmt::format("step {} stays local for now: the store still takes an earlier one", step));
  }
}

void StoreBehind::on_saved(const SaveReport& report) {
  if (!uploader_) return;
  UploadJob job;
  {
    const std::lock_guard lock(mutex_);
    const std::string name = checkpoint_name(report.step);
    if (world_.leads()) newest_local_ = name;
    std::optional<WrittenPart> written = std::exchange(written_, std::nullopt);
    if (wanted_.erase(report.step) == 0 || !written) return;
    job = {name, written->token, report.step, {}, std::nullopt};
    for (auto& [file, source] : written->files)
      job.files.push_back(
          {file, std::move(source), digested_ranges(written->tensors, file, written->digest_block)});
  }
  if (world_.leads()) {
    job.manifest = read_manifest(run_.directory.checkpoints(), job.name);
    job.is_best = report.is_best;
  }
  uploader_->begin(std::move(job));
}

void StoreBehind::on_ended(const UploadReport& report) {
  if (world_.leads() && !report.failed) {
    run_.journal.event("upload", report.address,
                       {{"step", report.step}, {"bytes", report.bytes}, {"seconds", report.seconds}});
  }
  if (!report.failed) {
    run_.journal.log(fmt::format("step {} is in the store: {} in {:.1f} s", report.step,
                                 format_bytes(report.bytes), report.seconds));
    mirror_->wake();
  }
  const std::lock_guard lock(mutex_);
  if (world_.leads() && !report.failed) newest_stored_ = checkpoint_name(report.step);
  ended_.push_back(report);
}

void StoreBehind::tell() {
  if (!uploader_) return;
  std::vector<UploadReport> ended;
  {
    const std::lock_guard lock(mutex_);
    ended = std::exchange(ended_, {});
  }
  for (const UploadReport& report : ended) {
    if (report.warning.empty()) continue;
    const std::string what =
        report.failed ? fmt::format("step {} is not in the store yet: {}", report.step, report.warning)
                      : report.warning;
    run_.journal.message("warning: " + what);
    run_.journal.event("warning", what, {{"step", report.step}});
  }
  uploader_->check();
}

void StoreBehind::finish() {
  if (!uploader_) return;
  uploader_->wait();
  tell();
  std::string newest, best;
  if (world_.leads()) {
    const std::lock_guard lock(mutex_);
    if (newest_local_ != newest_stored_) newest = newest_local_;
    best = best_local();  // while it was saved the store may have been busy
    if (best == newest || best.empty() || is_stored(best)) best.clear();
  }
  bring(world_.from_lead(newest, "upload"));
  bring(world_.from_lead(best, "upload"));
}

void StoreBehind::bring(const std::string& name) {
  if (name.empty()) return;
  upload_again(name);
  uploader_->wait();
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    for (const UploadReport& report : ended_) {
      if (report.failed) why = report.warning;
    }
  }
  tell();
  if (world_.all(why.empty(), "upload")) return;
  throw IoError("{}: {} is not there: {}; it is safe in {}: bring it with `tandem copy {} {}`", address_,
                name, why.empty() ? "another rank could not copy its part" : why,
                run_.directory.checkpoints().string(), run_.directory.path().string(), address_);
}

}  // namespace tandem
