#include "tandem/checkpoint/writer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/base/thread_pool.h"
#include "tandem/base/units.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/running_digest.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Digests each tensor's live memory into its entry and, given staging, copies it to where the file has it.
void snapshot(std::span<const TensorView> tensors, std::span<std::byte> staging, Manifest& manifest,
              ThreadPool* pool) {
  std::vector<size_t> order(tensors.size());  // largest first, so that no thread starts a big one last
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tensors[a].bytes.size() > tensors[b].bytes.size(); });
  const auto take = [&](int64_t task, int /*worker*/) {
    const size_t index = order[static_cast<size_t>(task)];
    TensorEntry& entry = manifest.tensors[index];
    const auto src = tensors[index].bytes;
    const auto offset = static_cast<size_t>(entry.shards[0].offset);
    entry.digest = digest_and_copy(src, staging.empty() ? staging : staging.subspan(offset, src.size()));
    entry.shards[0].digest = entry.digest;
  };
  const auto num_tasks = static_cast<int64_t>(tensors.size());
  if (pool != nullptr) {
    pool->parallel_for(num_tasks, take);
  } else {
    for (int64_t task = 0; task < num_tasks; ++task) take(task, 0);
  }
}

}  // namespace

int64_t staging_bytes(std::span<const TensorView> tensors) {
  int64_t bytes = 0;
  for (const TensorView& tensor : tensors) bytes += static_cast<int64_t>(tensor.bytes.size());
  return bytes;
}

CheckpointWriter::CheckpointWriter(fs::path folder, int keep, ThreadPool* pool)
    : folder_(std::move(folder)),
      keep_(keep),
      pool_(pool),
      hostname_(hostname()),
      hardware_(hardware_description()) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw IoError("{}: cannot create: {}", folder_.string(), error.message());
  remove_leftovers(folder_);
  for (const fs::path& directory : list_checkpoints(folder_)) {
    try {
      kept_.push_back({read_manifest(directory).sequence, directory});
    } catch (const Error&) {  // damaged: not ours to count or to delete; readers report it
    }
  }
  std::stable_sort(kept_.begin(), kept_.end(),
                   [](const Kept& a, const Kept& b) { return a.sequence < b.sequence; });
  if (!kept_.empty()) next_sequence_ = kept_.back().sequence + 1;
}

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
}

void CheckpointWriter::check_space(int64_t bytes, const std::string& name) const {
  const int64_t needed = bytes + (int64_t{1} << 20);  // the manifest and the file system's own records
  const int64_t free = free_disk_bytes(folder_);
  if (free < needed) {
    throw IoError(
        "{}: disk full: {} needs {} ({} bytes), free are {} ({} bytes); earlier checkpoints are untouched: "
        "free some space or lower checkpoint.keep",
        folder_.string(), name, format_bytes(needed), needed, format_bytes(free), free);
  }
}

Manifest CheckpointWriter::describe(const CheckpointMeta& meta, std::span<const TensorView> tensors) const {
  Manifest manifest;
  manifest.meta = meta;
  manifest.sequence = next_sequence_;
  manifest.hostname = hostname_;
  manifest.hardware = hardware_;
  manifest.time = utc_time();
  const std::string file = "rank-00000.ckpt";
  int64_t offset = 0;
  for (const TensorView& view : tensors) {
    TensorEntry entry{view.name, view.dtype, view.shape, {}, {}};
    const int64_t bytes = entry.bytes();
    TANDEM_CHECK(bytes == static_cast<int64_t>(view.bytes.size()),
                 "tensor '{}': {} of {} is {} bytes, given {}", view.name, to_string(view.shape),
                 dtype_name(view.dtype), bytes, view.bytes.size());
    // Tensors lie one after another without gaps: every byte of the file is under some digest.
    const std::vector<int64_t> begin(static_cast<size_t>(view.shape.rank()), 0);
    entry.shards.push_back({file, offset, bytes, begin, view.shape.dims(), {}});
    manifest.tensors.push_back(std::move(entry));
    offset += bytes;
  }
  manifest.files.push_back({file, offset});
  return manifest;
}

void CheckpointWriter::save(const CheckpointMeta& meta, std::span<const TensorView> tensors,
                            std::span<std::byte> staging) {
  wait();
  Manifest manifest = describe(meta, tensors);
  const int64_t bytes = staging_bytes(tensors);
  TANDEM_CHECK(staging.empty() || static_cast<int64_t>(staging.size()) >= bytes);
  check_space(bytes, checkpoint_name(meta.step));

  const auto start = Clock::now();
  snapshot(tensors, staging, manifest, pool_);
  const double snapshot_s = seconds_since(start);
  ++next_sequence_;
  if (staging.empty()) {
    std::vector<std::span<const std::byte>> pieces;
    for (const TensorView& tensor : tensors) pieces.push_back(tensor.bytes);
    write(manifest, pieces, snapshot_s);
    return;
  }
  finished_.store(false);
  background_ = std::thread([this, manifest = std::move(manifest),
                             copied = std::span<const std::byte>(staging).first(bytes), snapshot_s] {
    try {
      write(manifest, {&copied, 1}, snapshot_s);
    } catch (...) {
      failure_ = std::current_exception();
    }
    finished_.store(true, std::memory_order_release);
  });
}

void CheckpointWriter::write(const Manifest& manifest, std::span<const std::span<const std::byte>> pieces,
                             double snapshot_s) {
  const auto start = Clock::now();
  const std::string name = checkpoint_name(manifest.meta.step);
  const fs::path directory = folder_ / name;
  SaveReport report{manifest.meta.step, directory, manifest.total_bytes(), snapshot_s, 0, {}};
  try {
    PendingDirectory pending(folder_, name);
    OutputFile data(pending.path() / manifest.files[0].name);
    for (const auto piece : pieces) data.write_all(piece);
    data.sync_and_close();
    const std::string text = render_manifest(manifest);
    OutputFile description(pending.path() / kManifestFile);
    description.write_all(std::as_bytes(std::span(text)));
    description.sync_and_close();
    pending.commit();
  } catch (const Error& error) {
    throw IoError("{}: checkpoint not saved ({} needed, {} free; earlier ones are untouched): {}",
                  directory.string(), format_bytes(report.bytes), format_bytes(free_disk_bytes(folder_)),
                  error.what());
  }
  drop_old({manifest.sequence, directory}, report);
  report.write_s = seconds_since(start);
  reports_.push_back(std::move(report));
}

// The new checkpoint is safe by now: trouble here is told, and does not make the save a failure.
void CheckpointWriter::drop_old(const Kept& newest, SaveReport& report) {
  std::erase_if(kept_, [&](const Kept& kept) { return kept.directory == newest.directory; });
  kept_.push_back(newest);
  try {
    point_latest(folder_, newest.directory.filename().string());
    while (keep_ > 0 && kept_.size() > static_cast<size_t>(keep_)) {
      const fs::path oldest = kept_.front().directory;
      kept_.erase(kept_.begin());
      remove_checkpoint(oldest);
    }
  } catch (const std::exception& error) {
    report.warning = error.what();
  }
}

void CheckpointWriter::wait() {
  if (background_.joinable()) background_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

std::vector<SaveReport> CheckpointWriter::poll() {
  if (background_.joinable() && !finished_.load(std::memory_order_acquire)) return {};
  wait();
  return std::exchange(reports_, {});
}

}  // namespace tandem
