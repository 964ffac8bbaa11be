#include "tandem/checkpoint/writer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <random>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/base/thread_pool.h"
#include "tandem/checkpoint/joined.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/reader.h"
#include "tandem/checkpoint/running_digest.h"
#include "tandem/checkpoint/take_digests.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kClosingPatience = std::chrono::seconds(5);
constexpr int64_t kSpaceBeside = int64_t{1} << 20;  // the manifest and the file system's own records

void write_data(ObjectWriter& file, std::span<const TensorView> memory) {
  for (const TensorView& view : memory) {
    if (view.in_halves()) {
      write_joined(file, view.bytes, view.low);
    } else {
      file.write_all(view.bytes);
    }
  }
  file.finish();
}

// A CommError stays one: another rank is to blame, not the disk.
[[noreturn]] void throw_not_saved(const Error& error, const std::string& what) {
  if (dynamic_cast<const CommError*>(&error) != nullptr) throw CommError("{}: {}", what, error.what());
  throw IoError("{}: {}", what, error.what());
}

}  // namespace

int64_t staging_bytes(std::span<const TensorView> tensors) {
  int64_t bytes = 0;
  for (const TensorView& tensor : tensors) bytes += tensor.num_bytes();
  return bytes;
}

CheckpointWriter::CheckpointWriter(StoreRef store, int keep, ThreadPool* pool, SaveGroup group,
                                   OnSaved on_saved)
    : store_(std::move(store)),
      keep_(keep),
      pool_(pool),
      group_(std::move(group)),
      hostname_(hostname()),
      hardware_(hardware_description()),
      on_saved_(std::move(on_saved)) {
  TANDEM_CHECK(group_.rank >= 0 && group_.rank < group_.world_size);
  TANDEM_CHECK(group_.world_size == 1 || !group_.token.empty(), "many ranks need a token they agree on");
  if (group_.token.empty()) group_.token = fmt::format("{}-{:08x}", ::getpid(), std::random_device{}());
  store_->make();
  if (group_.rank != 0) return;
  store_->remove_leftovers(
      is_checkpoint_name);  // what cannot be removed was told when the run began (mend.h)
  for (const std::string& name : list_checkpoints(store_)) {
    try {
      const Manifest manifest = read_manifest(store_, name);
      kept_.push_back({manifest.sequence, name, manifest.total_bytes(), false});
    } catch (const Error&) {  // damaged: not ours to count or to delete; readers report it
    }
  }
  std::stable_sort(kept_.begin(), kept_.end(),
                   [](const Kept& a, const Kept& b) { return a.sequence < b.sequence; });
  best_ = store_->alias(kBest).value_or("");
  if (kept_.empty()) return;
  next_sequence_ = kept_.back().sequence + 1;
  total_bytes_ = kept_.back().bytes;
  if (group_.world_size > 1) make_room(total_bytes_);  // before any rank looks for it
}

CheckpointWriter::~CheckpointWriter() {
  try {
    close();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
}

// Each rank looks for its own part: of the others' nobody knows how much is written already. Rank 0 makes
// room for all of them, for which they give it a moment.
void CheckpointWriter::await_space(int64_t bytes, const std::string& name) {
  const auto deadline = Clock::now() + kClosingPatience;
  const bool leads = group_.rank == 0;
  if (leads) make_room(group_.world_size > 1 ? std::max(bytes, total_bytes_) : bytes);
  const int64_t needed = bytes + kSpaceBeside;
  int64_t free = store_->free_bytes();
  for (; free < needed && !leads && Clock::now() < deadline; free = store_->free_bytes())
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (free >= needed) return;
  std::string advice = "free some space";
  if (leads && kept_.size() > 1) {
    advice += fmt::format(" or {} checkpoint.keep ({} are kept)", keep_ == 0 ? "set" : "lower", kept_.size());
  } else if (leads && !kept_.empty()) {
    advice += fmt::format(", or go on elsewhere with --run-dir and --resume-from-checkpoint {}",
                          store_->description(kept_.back().name));
  }
  throw IoError(
      "{}: disk full: {} needs {} ({} bytes), free are {} ({} bytes); earlier checkpoints are kept: {}",
      store_->description(""), name, format_bytes(needed), needed, format_bytes(free), free, advice);
}

// What the next save pushes out may go before it, as long as a whole one stays.
void CheckpointWriter::make_room(int64_t bytes) {
  const auto staying = static_cast<size_t>(std::max(1, keep_ - 1));
  while (keep_ > 0 && store_->free_bytes() < bytes + kSpaceBeside) {
    const std::vector<Kept> older = older_than(staying);
    if (older.empty()) return;
    try {
      const Manifest newest = read_manifest(store_, kept_.back().name);
      if (!kept_.back().own) verify(newest);  // it may be what a resume has skipped
      kept_.back().own = true;
      store_->remove_bundle(older.front().name);
    } catch (const Error&) {  // then there is no room, which is told
      return;
    }
    std::erase_if(kept_, [&](const Kept& kept) { return kept.name == older.front().name; });
  }
}

std::vector<CheckpointWriter::Kept> CheckpointWriter::older_than(size_t newest) const {
  std::vector<Kept> older;
  for (size_t i = 0; i + newest < kept_.size(); ++i) {
    if (kept_[i].name != best_) older.push_back(kept_[i]);
  }
  return older;
}

CheckpointWriter::Save CheckpointWriter::snapshot(const CheckpointMeta& meta,
                                                  std::span<const TensorView> tensors,
                                                  std::span<std::byte> staging) {
  wait();
  leave_pending([](const PendingSave& pending) { pending.throw_if_failed(); });
  Save save{meta, group_, {}, staging_bytes(tensors), {}, 0};
  std::vector<ShardPlace> places;
  save.part = describe_part(group_.rank, tensors, places);
  save.part.digest_block = digest_block_of(group_.world_size == 1 ? save.bytes : group_.total_bytes);
  TANDEM_CHECK(staging.empty() || static_cast<int64_t>(staging.size()) >= save.bytes);
  await_space(save.bytes, checkpoint_name(meta.step));
  const double start = steady_s();
  take_digests(tensors, places, staging, save.part, pool_);
  save.snapshot_s = steady_s() - start;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Shard& shard = save.part.tensors[places[i].tensor].shards[places[i].shard];
    save.memory.push_back(tensors[i]);
    const auto copy = staged_at(tensors[i], shard, staging);
    if (copy.empty()) continue;
    save.memory.back().bytes = copy;
    save.memory.back().low = {};
  }
  return save;
}

void CheckpointWriter::save(const CheckpointMeta& meta, std::span<const TensorView> tensors,
                            std::span<std::byte> staging) {
  SaveGroup group = group_;
  group.token += fmt::format("-{}", ++num_saves_);  // a step may be saved twice
  Save save;
  try {
    save = snapshot(meta, tensors, staging);
    save.group = group;
  } catch (const std::exception& error) {
    if (group.world_size > 1) {  // the others may be on their way to waiting for this rank
      try {
        PendingSave(store_, checkpoint_name(meta.step), group).fail(error.what());
      } catch (const Error&) {  // the folder is lost for this rank; their time runs out
      }
    }
    throw;
  }
  if (staging.empty()) {
    write(save);
    wait_committed();
    return;
  }
  finished_.store(false);
  background_ = std::thread([this, save = std::move(save)] {
    try {
      write(save);
    } catch (...) {
      failure_ = std::current_exception();
    }
    finished_.store(true, std::memory_order_release);
  });
}

void CheckpointWriter::write(const Save& save) {
  const double start = steady_s();
  const std::string name = checkpoint_name(save.meta.step);
  SaveReport report{save.meta.step,   store_->description(name), save.bytes, save.snapshot_s, 0, {},
                    save.meta.is_best};
  const int64_t sequence = next_sequence_++;
  try {
    auto pending = std::make_unique<PendingSave>(store_, name, save.group);
    try {
      pending->throw_if_failed();
      for (const CheckpointFile& file : save.part.files)
        write_data(*pending->draft().create(file.name), save.memory);
      if (on_written_) on_written_(written(save, pending->draft()));
      if (save.group.rank == 0) {
        report.bytes = commit(save, *pending, sequence);
      } else {
        pending->throw_if_failed();
        pending->add_part(render_part(save.part));
        joined_ = std::move(pending);
      }
    } catch (const std::exception& error) {
      pending->fail(error.what());
      if (save.group.rank == 0) abandoned_.push_back({name, save.group.token});
      throw;
    }
  } catch (const Error& error) {
    throw_not_saved(
        error,
        fmt::format("{}: checkpoint not saved ({} needed, {} free; earlier ones are untouched)",
                    report.directory.string(), format_bytes(save.bytes), format_bytes(store_->free_bytes())));
  }
  report.write_s = steady_s() - start;
  if (on_saved_) on_saved_(report);
  if (save.group.rank == 0) drop_old({sequence, name, report.bytes, true}, save.meta.is_best, report);
  const std::lock_guard lock(reports_mutex_);
  reports_.push_back(std::move(report));
}

WrittenPart CheckpointWriter::written(const Save& save, const Draft& draft) {
  WrittenPart written{save.meta.step, save.group.token, {}, save.part.digest_block, save.part.tensors};
  for (const CheckpointFile& file : save.part.files)
    written.files.emplace_back(file.name, draft.open(file.name));
  return written;
}

// Returns the bytes of all ranks.
int64_t CheckpointWriter::commit(const Save& save, PendingSave& pending, int64_t sequence) {
  Draft& draft = pending.draft();
  std::vector<Part> parts{save.part};
  for (const std::string& name : pending.await_parts([this] {
         return closing_.load() ? std::min(group_.timeout, kClosingPatience) : group_.timeout;
       })) {
    const auto part = draft.open(name);
    parts.push_back(parse_part(read_text(*part), part->description()));
  }
  Manifest manifest;
  manifest.meta = save.meta;
  manifest.sequence = sequence;
  manifest.hostname = hostname_;
  manifest.hardware = save.meta.hardware.empty() ? hardware_ : save.meta.hardware;
  manifest.time = utc_time();
  merge_parts(std::move(parts), manifest);
  check_files(manifest, [&](const std::string& file) { return draft.open(file); });
  name_as_committed(manifest, draft);
  pending.commit(render_manifest(manifest));
  read_manifest(store_,
                checkpoint_name(save.meta.step));  // what the disk gives back, before anything older goes
  pending.drop_replaced();
  return manifest.total_bytes();
}

// The new checkpoint is safe by now: trouble here is told, and does not make the save a failure.
void CheckpointWriter::drop_old(const Kept& newest, bool is_best, SaveReport& report) {
  std::erase_if(kept_, [&](const Kept& kept) { return kept.name == newest.name; });
  kept_.push_back(newest);
  total_bytes_ = newest.bytes;
  const auto attempt = [&](const std::function<void()>& action) {
    try {
      action();
      return true;
    } catch (const std::exception& error) {
      report.warning += (report.warning.empty() ? "" : "; ") + std::string(error.what());
      return false;
    }
  };
  const bool linked = attempt([&] { store_->set_alias(kLatest, newest.name); });
  if (is_best && attempt([&] { store_->set_alias(kBest, newest.name); })) best_ = newest.name;
  // One that cannot be removed is tried again after the next save.
  for (const Kept& old : older_than(keep_ > 0 && linked ? static_cast<size_t>(keep_) : kept_.size())) {
    if (attempt([&] { store_->remove_bundle(old.name); }))
      std::erase_if(kept_, [&](const Kept& kept) { return kept.name == old.name; });
  }
  // Every rank has gone on to this save, so nobody looks for the notes in those any more.
  for (const auto& [name, token] : std::exchange(abandoned_, {}))
    attempt([&] { store_->remove_draft(name, token); });
  if (group_.world_size > 1) make_room(total_bytes_);  // before any rank looks for it
}

void CheckpointWriter::wait() {
  if (background_.joinable()) background_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void CheckpointWriter::close() {
  closing_.store(true);
  wait();
}

void CheckpointWriter::wait_committed() {
  wait();
  leave_pending([](const PendingSave& pending) { pending.await_commit(); });
}

void CheckpointWriter::leave_pending(const std::function<void(const PendingSave&)>& check) {
  const auto pending = std::exchange(joined_, nullptr);
  if (pending == nullptr) return;
  try {
    check(*pending);
  } catch (const Error& error) {
    throw_not_saved(error,
                    fmt::format("{}: checkpoint not saved (earlier ones are untouched)", pending->target()));
  }
}

std::vector<SaveReport> CheckpointWriter::poll() {
  if (!background_.joinable() || finished_.load(std::memory_order_acquire)) wait();
  const std::lock_guard lock(reports_mutex_);
  return std::exchange(reports_, {});
}

}  // namespace tandem
