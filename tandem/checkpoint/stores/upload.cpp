#include "tandem/checkpoint/stores/upload.h"

#include <algorithm>
#include <chrono>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/part.h"
#include "tandem/checkpoint/running_digest.h"
#include "tandem/checkpoint/stores/alive.h"
#include "tandem/checkpoint/stores/claim.h"
#include "tandem/store/in_order.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kBetweenProgress = std::chrono::seconds(5);
constexpr auto kStorePoll = std::chrono::milliseconds(500);  // each look at a draft is a call of the store

std::string progress_note(int rank) { return fmt::format("progress-{:05}", rank); }

}  // namespace

std::vector<DigestedRange> digested_ranges(const std::vector<TensorEntry>& tensors, const std::string& file,
                                           int64_t digest_block) {
  std::vector<DigestedRange> ranges;
  for (const TensorEntry& tensor : tensors) {
    for (const Shard& shard : tensor.shards) {
      if (shard.file != file) continue;
      const int64_t block = digest_block > 0 ? digest_block : std::max<int64_t>(1, shard.bytes);
      for (size_t i = 0; i < shard.digests.size(); ++i) {
        const int64_t begin = static_cast<int64_t>(i) * block;
        ranges.push_back({shard.offset + begin, std::min(block, shard.bytes - begin), shard.digests[i]});
      }
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const DigestedRange& a, const DigestedRange& b) { return a.offset < b.offset; });
  return ranges;
}

void copy_checked(const ObjectReader& source, std::span<const DigestedRange> ranges, ObjectWriter& dst,
                  const std::function<void(int64_t)>& told) {
  InOrder in_order(source);
  const auto copy = [&](int64_t end, RunningDigest* digest) {
    while (in_order.at() < end) {
      const size_t most = std::min(static_cast<size_t>(end - in_order.at()), kDigestPiece);
      std::span<std::byte> room;
      if (!source.is_far()) room = dst.room(most);  // one copy less; what is far lies in memory already
      std::span<const std::byte> piece = room;
      if (room.empty()) {
        piece = in_order.next(most);
      } else {
        in_order.read(room);
      }
      if (digest != nullptr) digest->add(piece);
      if (room.empty()) {
        dst.write_all(piece);
      } else {
        dst.add(piece.size());
      }
      told(static_cast<int64_t>(piece.size()));
    }
  };
  for (const DigestedRange& range : ranges) {
    if (range.offset < in_order.at()) {
      throw DataError("{}: damaged: bytes {} to {} are of two shards", source.description(), range.offset,
                      in_order.at());
    }
    copy(range.offset, nullptr);  // what lies between tensors
    RunningDigest digest;
    copy(range.offset + range.bytes, &digest);
    if (const std::string found = digest.hex(); found != range.digest) {
      throw DataError("{}: damaged: bytes {} to {}: expected digest {}, found {}", source.description(),
                      range.offset, range.offset + range.bytes, range.digest, found);
    }
  }
  copy(source.size(), nullptr);
}

CheckpointUploader::CheckpointUploader(StoreRef store, std::string run, int keep, SaveGroup group,
                                       std::span<std::byte> memory, Events events)
    : store_(std::move(store)),
      run_(std::move(run)),
      keep_(keep),
      group_(std::move(group)),
      events_(std::move(events)) {
  store_->lend_memory(memory);
  group_.poll = kStorePoll;
  // A rank that this one waits for may be lost, which training notices; this thread must not outlive that.
  group_.check_peers = [this, check = group_.check_peers] {
    if (ending_.load()) throw IoError("given up: the run has ended");
    check();
  };
}

CheckpointUploader::~CheckpointUploader() {
  ending_.store(true);
  if (!idle()) store_->give_up();
  if (thread_.joinable()) thread_.join();
  store_->lend_memory({});
}

void CheckpointUploader::begin(UploadJob job) {
  wait();
  busy_.store(true);
  thread_ = std::thread([this, job = std::move(job)]() mutable {
    work(job);
    busy_.store(false, std::memory_order_release);
  });
}

void CheckpointUploader::wait() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointUploader::check() const {
  const std::lock_guard lock(mutex_);
  if (!lost_.empty()) throw DataError("{}", lost_);
}

template <typename Action>
void CheckpointUploader::claiming(Action&& action) {
  try {
    action();
  } catch (const DataError& error) {
    const std::lock_guard lock(mutex_);
    lost_ = error.what();
    throw;
  }
}

void CheckpointUploader::work(UploadJob& job) {
  UploadReport report;
  report.step = job.step;
  report.address = store_->description(job.name);
  const double start = steady_s();
  try {
    upload(job, report);
  } catch (const std::exception& error) {
    report.failed = true;
    report.warning = error.what();
  }
  report.seconds = steady_s() - start;
  job.files.clear();
  if (events_.ended) events_.ended(report);
}

void CheckpointUploader::upload(UploadJob& job, UploadReport& report) {
  SaveGroup group = group_;
  group.token = job.token;
  const bool leads = group.rank == 0;
  if (leads) {
    TANDEM_CHECK(job.manifest.has_value());
    claiming([&] { take_claim(store_, run_, job.manifest->sequence); });
  }
  PendingSave pending(store_, job.name, group);
  try {
    copy_files(job, pending, report);
    if (!leads) {
      pending.throw_if_failed();
      pending.add_part("{}");
      return;
    }
    commit(job, pending);
  } catch (const std::exception& error) {
    pending.fail(error.what());
    throw;
  }
  drop_old(job, report);
}

void CheckpointUploader::copy_files(UploadJob& job, PendingSave& pending, UploadReport& report) {
  int64_t total = 0;
  for (const UploadFile& file : job.files) total += file.source->size();
  auto told_at = Clock::now();
  std::string beats;  // the others see by a note that grows that this rank gets on
  const auto told = [&](int64_t bytes) {
    report.bytes += bytes;
    if (ending_.load()) throw IoError("given up: the run has ended");
    if (Clock::now() - told_at < kBetweenProgress) return;
    told_at = Clock::now();
    if (events_.progress) events_.progress(job.step, report.bytes, total);
    if (group_.world_size > 1) pending.draft().put(progress_note(group_.rank), beats += '.');
  };
  for (UploadFile& file : job.files) {
    const auto dst = pending.draft().create(file.name);
    copy_checked(*file.source, file.ranges, *dst, told);
    dst->finish();
    file.source.reset();
  }
  if (!beats.empty()) pending.draft().remove(progress_note(group_.rank));
}

void CheckpointUploader::commit(UploadJob& job, PendingSave& pending) {
  Draft& draft = pending.draft();
  pending.await_parts([this] { return group_.timeout; });
  Manifest manifest = *job.manifest;
  check_files(manifest, [&](const std::string& file) { return draft.open(file); });
  name_as_committed(manifest, draft);
  claiming([&] {
    check_claim(store_, run_, manifest.sequence);
    pending.commit(render_manifest(manifest));
  });
  read_manifest(store_, job.name);  // what the store gives back, before anything older goes
  pending.drop_replaced();
}

void CheckpointUploader::read_kept() {
  if (kept_) return;
  std::vector<Kept> kept;
  for (const std::string& name : list_checkpoints(store_)) {
    try {
      kept.push_back({read_manifest(store_, name).sequence, name});
    } catch (const DataError&) {  // damaged: not ours to count or to delete; readers report it
    }
  }
  kept_ = std::move(kept);
}

// The checkpoint is in the store by now: trouble here is told, and does not make the upload a failure.
void CheckpointUploader::drop_old(const UploadJob& job, UploadReport& report) {
  const auto attempt = [&](const auto& action) {
    try {
      action();
    } catch (const std::exception& error) {
      report.warning += (report.warning.empty() ? "" : "; ") + std::string(error.what());
    }
  };
  attempt([&] {
    read_kept();
    std::erase_if(*kept_, [&](const Kept& kept) { return kept.name == job.name; });
    kept_->push_back({job.manifest->sequence, job.name});
    std::stable_sort(kept_->begin(), kept_->end(),
                     [](const Kept& a, const Kept& b) { return a.sequence < b.sequence; });
    store_->set_alias(kLatest, kept_->back().name);  // the best may come after what is newer
    if (job.is_best) store_->set_alias(kBest, job.name);
    if (keep_ == 0) return;
    const std::optional<std::string> best = store_->alias(kBest);
    for (size_t i = 0; i + static_cast<size_t>(keep_) < kept_->size();) {
      const std::string name = (*kept_)[i].name;
      if (name == best) {
        ++i;
        continue;
      }
      store_->remove_bundle(name);
      std::erase_if(*kept_, [&](const Kept& kept) { return kept.name == name; });
    }
  });
  // No other upload of this run is under way: every rank's was done before the commit. Of another run there
  // is none, as long as nobody has taken the store over.
  attempt([&] {
    check_claim(store_, run_, job.manifest->sequence);
    tidy_store(store_);
  });
}

void tidy_store(const StoreRef& store) {
  const std::vector<std::string> troubles = store->remove_leftovers(is_checkpoint_name);
  for (const std::string& name : old_claims(store)) store->remove(name);
  for (const std::string& name : old_signs(store)) store->remove(name);
  for (const std::string& trouble : troubles) throw IoError("{}", trouble);
}

}  // namespace tandem
