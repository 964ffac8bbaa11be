#include "tandem/checkpoint/reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "tandem/base/error.h"
#include "tandem/base/thread_pool.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/running_digest.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class InputFile {
 public:
  explicit InputFile(fs::path path)
      : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) throw DataError("{}: cannot open: {}", path_.string(), std::strerror(errno));
  }
  ~InputFile() { ::close(fd_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  void read_at(int64_t offset, std::span<std::byte> dst) const {
    while (!dst.empty()) {
      const ssize_t n = ::pread(fd_, dst.data(), dst.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw IoError("{}: cannot read: {}", path_.string(), std::strerror(errno));
      if (n == 0) throw DataError("{}: truncated: ends at byte {}", path_.string(), offset);
      dst = dst.subspan(static_cast<size_t>(n));
      offset += n;
    }
  }

 private:
  fs::path path_;
  int fd_;
};

// The shard's elements are one unbroken run of the tensor: only the first dim longer than 1 may be cut.
bool is_contiguous(const Shard& shard, const Shape& shape) {
  bool may_cut = true;
  for (int dim = 0; dim < shape.rank(); ++dim) {
    const int64_t extent = shard.end[static_cast<size_t>(dim)] - shard.begin[static_cast<size_t>(dim)];
    if (extent != shape[dim] && !may_cut) return false;
    if (extent != 1) may_cut = false;
  }
  return true;
}

int64_t first_element(const Shard& shard, const Shape& shape) {
  int64_t index = 0;
  for (int dim = 0; dim < shape.rank(); ++dim)
    index = index * shape[dim] + shard.begin[static_cast<size_t>(dim)];
  return index;
}

// Copies a shard's packed rows to their places in the whole tensor.
void scatter(std::span<const std::byte> packed, const Shard& shard, const TensorEntry& tensor,
             std::span<std::byte> dst) {
  const auto last = static_cast<size_t>(tensor.shape.rank() - 1);
  const auto row_bytes =
      static_cast<size_t>((shard.end[last] - shard.begin[last]) * dtype_bytes(tensor.dtype));
  std::vector<int64_t> index = shard.begin;
  for (size_t done = 0; done < packed.size(); done += row_bytes) {
    int64_t element = 0;
    for (size_t dim = 0; dim <= last; ++dim) element = element * tensor.shape.dims()[dim] + index[dim];
    std::memcpy(dst.data() + element * dtype_bytes(tensor.dtype), packed.data() + done, row_bytes);
    for (size_t dim = last; dim-- > 0;) {
      if (++index[dim] < shard.end[dim]) break;
      index[dim] = shard.begin[dim];
    }
  }
}

struct ShardRead {
  const TensorEntry* tensor;
  const Shard* shard;
  std::span<std::byte> dst;  // the whole tensor's; empty when only the digest is wanted
};

void read_shard(const ShardRead& job, const InputFile& file, const fs::path& directory) {
  const Shard& shard = *job.shard;
  const auto bytes = static_cast<size_t>(shard.bytes);
  const bool direct = !job.dst.empty() && is_contiguous(shard, job.tensor->shape);
  std::span<std::byte> dst;
  std::vector<std::byte> bounce;
  if (direct) {
    dst = job.dst.subspan(
        static_cast<size_t>(first_element(shard, job.tensor->shape) * dtype_bytes(job.tensor->dtype)), bytes);
  } else {
    bounce.resize(job.dst.empty() ? std::min(bytes, kDigestPiece) : bytes);
  }
  RunningDigest digest;
  for (size_t done = 0; done < bytes; done += kDigestPiece) {
    const size_t piece_bytes = std::min(kDigestPiece, bytes - done);
    const std::span<std::byte> piece = direct            ? dst.subspan(done, piece_bytes)
                                       : job.dst.empty() ? std::span(bounce).first(piece_bytes)
                                                         : std::span(bounce).subspan(done, piece_bytes);
    file.read_at(shard.offset + static_cast<int64_t>(done), piece);
    digest.add(piece);
  }
  const std::string found = digest.hex();
  if (found != shard.digest) {
    throw DataError(
        "{}: damaged: tensor '{}' (bytes {} to {}): expected digest {}, found {}; use an earlier checkpoint",
        (directory / shard.file).string(), job.tensor->name, shard.offset, shard.offset + shard.bytes,
        shard.digest, found);
  }
  if (!direct && !job.dst.empty() && bytes > 0) scatter(bounce, shard, *job.tensor, job.dst);
}

void read_all(const Manifest& manifest, std::vector<ShardRead> jobs, ThreadPool* pool) {
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const ShardRead& a, const ShardRead& b) { return a.shard->bytes > b.shard->bytes; });
  std::map<std::string_view, InputFile> files;
  for (const CheckpointFile& file : manifest.files)
    files.try_emplace(file.name, manifest.directory / file.name);

  std::mutex mutex;
  std::exception_ptr failure;  // of the first failed job in the order of jobs, so that reports do not vary
  int64_t failed_task = -1;
  const auto read = [&](int64_t task, int /*worker*/) {
    const ShardRead& job = jobs[static_cast<size_t>(task)];
    try {
      read_shard(job, files.at(job.shard->file), manifest.directory);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (failed_task < 0 || task < failed_task) {
        failed_task = task;
        failure = std::current_exception();
      }
    }
  };
  const auto num_tasks = static_cast<int64_t>(jobs.size());
  if (pool != nullptr) {
    pool->parallel_for(num_tasks, read);
  } else {
    for (int64_t task = 0; task < num_tasks; ++task) read(task, 0);
  }
  if (failure) std::rethrow_exception(failure);
}

void read_targets(const Manifest& manifest, std::span<const TensorTarget> targets, ThreadPool* pool) {
  std::unordered_map<std::string_view, const TensorTarget*> by_name;
  for (const TensorTarget& target : targets) by_name[target.name] = &target;
  std::vector<ShardRead> jobs;
  for (const TensorEntry& tensor : manifest.tensors) {
    const auto target = by_name.find(tensor.name);
    if (target == by_name.end()) continue;
    for (const Shard& shard : tensor.shards) jobs.push_back({&tensor, &shard, target->second->bytes});
  }
  read_all(manifest, std::move(jobs), pool);
}

std::string describe_type(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", dtype_name(dtype), to_string(shape));
}

// Newest first: the order in which they were saved, which a resume from an older step makes differ from
// the order of steps.
std::vector<Manifest> read_newest_first(const fs::path& folder, std::vector<Skipped>& skipped) {
  std::vector<Manifest> manifests;
  for (const fs::path& directory : list_checkpoints(folder)) {
    try {
      manifests.push_back(read_manifest(directory));
    } catch (const Error& error) {
      skipped.insert(skipped.begin(), {directory, error.what()});
    }
  }
  std::stable_sort(manifests.begin(), manifests.end(),
                   [](const Manifest& a, const Manifest& b) { return a.sequence > b.sequence; });
  return manifests;
}

}  // namespace

void check_matches(const Manifest& manifest, std::span<const TensorTarget> targets, Match match) {
  const std::string origin = manifest.directory.string();
  std::unordered_map<std::string_view, const TensorEntry*> entries;
  for (const TensorEntry& tensor : manifest.tensors) entries[tensor.name] = &tensor;
  for (const TensorTarget& target : targets) {
    const std::string wanted = describe_type(target.dtype, target.shape);
    const auto entry = entries.find(target.name);
    if (entry == entries.end()) {
      throw DataError("{}: checkpoint of another model: expected tensor '{}' ({}), found none of that name",
                      origin, target.name, wanted);
    }
    if (entry->second->dtype != target.dtype || entry->second->shape != target.shape) {
      throw DataError("{}: checkpoint of another model: tensor '{}': expected {}, found {}", origin,
                      target.name, wanted, describe_type(entry->second->dtype, entry->second->shape));
    }
    TANDEM_CHECK(entry->second->bytes() == static_cast<int64_t>(target.bytes.size()), "tensor '{}'",
                 target.name);
    entries.erase(entry);
  }
  if (match == Match::Subset || entries.empty()) return;
  for (const TensorEntry& tensor : manifest.tensors) {
    if (!entries.contains(tensor.name)) continue;
    throw DataError(
        "{}: checkpoint of another model: it holds tensor '{}' ({}), which this one does not have", origin,
        tensor.name, describe_type(tensor.dtype, tensor.shape));
  }
}

void load(const Manifest& manifest, std::span<const TensorTarget> targets, ThreadPool* pool, Match match) {
  check_matches(manifest, targets, match);
  read_targets(manifest, targets, pool);
}

void verify(const Manifest& manifest, ThreadPool* pool) {
  std::vector<ShardRead> jobs;
  for (const TensorEntry& tensor : manifest.tensors) {
    for (const Shard& shard : tensor.shards) jobs.push_back({&tensor, &shard, {}});
  }
  read_all(manifest, std::move(jobs), pool);
}

Latest find_latest(const fs::path& folder, Check check, ThreadPool* pool) {
  Latest latest;
  for (Manifest& manifest : read_newest_first(folder, latest.skipped)) {
    try {
      if (check == Check::Digests) verify(manifest, pool);
    } catch (const Error& error) {
      latest.skipped.push_back({manifest.directory, error.what()});
      continue;
    }
    latest.manifest = std::move(manifest);
    break;
  }
  return latest;
}

Latest load_latest(const fs::path& folder, std::span<const TensorTarget> targets, ThreadPool* pool,
                   Match match) {
  Latest latest;
  for (Manifest& manifest : read_newest_first(folder, latest.skipped)) {
    check_matches(manifest, targets, match);
    try {
      read_targets(manifest, targets, pool);
    } catch (const Error& error) {
      latest.skipped.push_back({manifest.directory, error.what()});
      continue;
    }
    latest.manifest = std::move(manifest);
    return latest;
  }
  if (!latest.skipped.empty()) {
    throw DataError(
        "{}: none of {} checkpoints is whole; to start anew: --resume-from-checkpoint none; the newest: {}",
        folder.string(), latest.skipped.size(), latest.skipped.front().reason);
  }
  return latest;
}

}  // namespace tandem
