#include "tandem/checkpoint/read_boxes.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/split_float.h"
#include "tandem/base/thread_pool.h"
#include "tandem/checkpoint/boxes.h"
#include "tandem/checkpoint/running_digest.h"

namespace tandem {
namespace {

constexpr int64_t kFarRead = int64_t{4} << 20;  // of a file that is far, with one call
constexpr size_t kOpenFiles = 64;  // at a time: a checkpoint may have more files than a process may open

std::unique_ptr<ObjectReader> open_data(const Manifest& manifest, std::string_view file) {
  try {
    return manifest.open(std::string(file));
  } catch (const MissingObject& error) {
    throw DataError("{}", error.what());
  } catch (const IoError& error) {
    if (manifest.is_far()) throw;
    throw DataError("{}", error.what());
  }
}

// A shard's bytes [begin, end), which have a digest of their own, and who wants something of them.
struct Block {
  const TensorEntry* tensor;
  const Shard* shard;
  const std::string* digest;
  int64_t begin;
  int64_t end;
  std::vector<const BoxRead*> reads;
};

// Calls run(first byte in the shard, first byte in the destination, bytes) for the unbroken runs of a block
// that a read wants, until it returns false.
template <typename Run>
void for_each_run(const Block& block, const BoxRead& read, Run&& run) {
  const Box& from = block.shard->box;
  const Box both = intersect(from, read.box);
  const int64_t elem = dtype_bytes(block.tensor->dtype);
  const int64_t src_row = from.cols() * elem, dst_row = read.box.cols() * elem;
  if (both.elems() == 0) return;
  const auto clipped = [&](int64_t begin, int64_t end, int64_t dst) {
    const int64_t first = std::max(begin, block.begin), last = std::min(end, block.end);
    return first >= last || run(first, dst + first - begin, last - first);
  };
  const int64_t src_column = (both.col_begin - from.col_begin) * elem;
  const int64_t dst_column = (both.col_begin - read.box.col_begin) * elem;
  const int64_t top = both.row_begin - from.row_begin, bottom = both.row_end - from.row_begin;
  const int64_t shift = from.row_begin - read.box.row_begin;           // from rows here to rows there
  if (both.cols() == from.cols() && both.cols() == read.box.cols()) {  // whole rows on both sides: one run
    clipped(top * src_row, bottom * src_row, (top + shift) * dst_row);
    return;
  }
  const int64_t last = std::min(bottom, (block.end - 1) / src_row + 1);
  for (int64_t row = std::max(top, block.begin / src_row); row < last; ++row) {
    const int64_t begin = row * src_row + src_column;
    if (!clipped(begin, begin + both.cols() * elem, (row + shift) * dst_row + dst_column)) return;
  }
}

bool wants(const Block& block, const BoxRead& read) {
  bool found = false;
  for_each_run(block, read, [&](int64_t, int64_t, int64_t) {
    found = true;
    return false;
  });
  return found;
}

// Where the block can be read to without a copy, because it lies in one piece in the only destination.
std::span<std::byte> direct_destination(const Block& block) {
  if (block.reads.size() != 1 || block.reads[0]->dst.empty() || !block.reads[0]->low.empty()) return {};
  std::span<std::byte> whole;
  for_each_run(block, *block.reads[0], [&](int64_t, int64_t dst, int64_t bytes) {
    if (bytes == block.end - block.begin)
      whole = block.reads[0]->dst.subspan(static_cast<size_t>(dst), static_cast<size_t>(bytes));
    return false;
  });
  return whole;
}

// Elements from byte `begin` of the box on, which begins an element.
void store_run(const BoxRead& read, int64_t begin, std::span<const std::byte> run) {
  const auto at = static_cast<size_t>(begin);
  if (read.low.empty()) {
    std::memcpy(read.dst.data() + at, run.data(), run.size());
  } else {
    split_floats(run, read.dst.subspan(at / 2, run.size() / 2), read.low.subspan(at / 2, run.size() / 2));
  }
}

bool is_digest_only(const Block& block) {
  return std::all_of(block.reads.begin(), block.reads.end(),
                     [](const BoxRead* read) { return read->dst.empty(); });
}

void check_digest(const Block& block, const ObjectReader& file, const RunningDigest& digest) {
  const std::string found = digest.hex();
  if (found == *block.digest) return;
  throw DataError(
      "{}: damaged: tensor '{}' (bytes {} to {}): expected digest {}, found {}; use an earlier checkpoint",
      file.description(), block.tensor->name, block.shard->offset + block.begin,
      block.shard->offset + block.end, *block.digest, found);
}

// The block's bytes to where they are wanted.
void scatter(const Block& block, std::span<const std::byte> bytes) {
  for (const BoxRead* read : block.reads) {
    if (read->dst.empty()) continue;
    for_each_run(block, *read, [&](int64_t src, int64_t to, int64_t run_bytes) {
      store_run(*read, to,
                bytes.subspan(static_cast<size_t>(src - block.begin), static_cast<size_t>(run_bytes)));
      return true;
    });
  }
}

// Piece by piece, each of which is digested while it is in the cache.
void read_block(const Block& block, const ObjectReader& file, std::vector<std::byte>& bounce) {
  const auto bytes = static_cast<size_t>(block.end - block.begin);
  const bool digest_only = is_digest_only(block);
  std::span<std::byte> dst = direct_destination(block);
  const bool direct = !dst.empty();
  if (!direct) {
    bounce.resize(std::max(bounce.size(), digest_only ? std::min(bytes, kDigestPiece) : bytes));
    dst = bounce;
  }
  RunningDigest digest;
  for (size_t done = 0; done < bytes; done += kDigestPiece) {
    const auto piece = dst.subspan(digest_only ? 0 : done, std::min(kDigestPiece, bytes - done));
    file.read_at(block.shard->offset + block.begin + static_cast<int64_t>(done), piece);
    digest.add(piece);
  }
  check_digest(block, file, digest);
  if (!direct && !digest_only) scatter(block, dst);
}

using BlocksByFile = std::map<std::string_view, std::vector<Block>>;

BlocksByFile plan(const Manifest& manifest, std::span<const BoxRead> reads) {
  std::unordered_map<const TensorEntry*, std::vector<const BoxRead*>> by_tensor;
  for (const BoxRead& read : reads) by_tensor[read.tensor].push_back(&read);
  BlocksByFile files;
  for (const TensorEntry& tensor : manifest.tensors) {
    const auto wanted = by_tensor.find(&tensor);
    if (wanted == by_tensor.end()) continue;
    for (const Shard& shard : tensor.shards) {
      std::vector<const BoxRead*> meeting;
      for (const BoxRead* read : wanted->second) {
        if (intersect(read->box, shard.box).elems() > 0) meeting.push_back(read);
      }
      if (meeting.empty()) continue;
      const int64_t size = manifest.block_bytes(shard);
      for (size_t i = 0; i < shard.digests.size(); ++i) {
        const int64_t begin = static_cast<int64_t>(i) * size;
        Block block{&tensor, &shard, &shard.digests[i], begin, std::min(begin + size, shard.bytes), {}};
        for (const BoxRead* read : meeting) {
          if (wants(block, *read)) block.reads.push_back(read);
        }
        if (!block.reads.empty()) files[shard.file].push_back(std::move(block));
      }
    }
  }
  return files;
}

int64_t begin_in_file(const Block& block) { return block.shard->offset + block.begin; }
int64_t end_in_file(const Block& block) { return block.shard->offset + block.end; }

// What is read with one call: a block, or neighbours in a file that is far.
struct Job {
  const ObjectReader* file;
  std::vector<const Block*> blocks;

  int64_t begin() const { return begin_in_file(*blocks.front()); }
  int64_t end() const { return end_in_file(*blocks.back()); }
};

void add_jobs(const std::vector<Block>& blocks, const ObjectReader& file, std::vector<Job>& jobs) {
  std::vector<const Block*> order;
  for (const Block& block : blocks) order.push_back(&block);
  if (file.is_far()) {
    std::stable_sort(order.begin(), order.end(),
                     [](const Block* a, const Block* b) { return begin_in_file(*a) < begin_in_file(*b); });
  }
  const size_t first = jobs.size();
  for (const Block* block : order) {
    const bool joins = file.is_far() && jobs.size() > first && jobs.back().end() == begin_in_file(*block) &&
                       end_in_file(*block) - jobs.back().begin() <= kFarRead;
    if (joins) {
      jobs.back().blocks.push_back(block);
    } else {
      jobs.push_back({&file, {block}});
    }
  }
}

// Where all of a job can be read to without a copy: its blocks lie there one behind the other.
std::span<std::byte> direct_destination(const Job& job) {
  std::span<std::byte> whole = direct_destination(*job.blocks.front());
  if (whole.empty()) return {};
  for (const Block* block : std::span(job.blocks).subspan(1)) {
    const std::span<std::byte> next = direct_destination(*block);
    if (next.empty() || next.data() != whole.data() + whole.size()) return {};
    whole = {whole.data(), whole.size() + next.size()};
  }
  return whole;
}

struct Buffers {
  std::vector<std::byte> bounce, fetched;
};

void read_job(const Job& job, Buffers& buffers) {
  const int64_t bytes = job.end() - job.begin();
  if (!job.file->is_far() || bytes > kFarRead) {
    for (const Block* block : job.blocks) read_block(*block, *job.file, buffers.bounce);
    return;
  }
  std::span<std::byte> dst = direct_destination(job);
  const bool direct = !dst.empty();
  if (!direct) {
    buffers.fetched.resize(std::max(buffers.fetched.size(), static_cast<size_t>(bytes)));
    dst = std::span(buffers.fetched).first(static_cast<size_t>(bytes));
  }
  job.file->read_at(job.begin(), dst);
  for (const Block* block : job.blocks) {
    const auto part = dst.subspan(static_cast<size_t>(begin_in_file(*block) - job.begin()),
                                  static_cast<size_t>(block->end - block->begin));
    RunningDigest digest;
    digest.add(part);
    check_digest(*block, *job.file, digest);
    if (!direct) scatter(*block, part);
  }
}

// Those that are far wait for the network, not for a core: so many at a time, however many cores there are.
template <typename Task>
void run_far(int64_t num_tasks, const Task& task) {
  std::atomic<int64_t> next{0};
  std::vector<std::jthread> streams;
  for (int stream = 0; stream < std::min<int64_t>(num_tasks, kStoreStreams); ++stream) {
    streams.emplace_back([&, stream] {
      for (int64_t i = next++; i < num_tasks; i = next++) task(i, stream);
    });
  }
}

void read_jobs(const std::vector<Job>& jobs, ThreadPool* pool) {
  std::mutex mutex;
  std::exception_ptr failure;  // of the first failed job in the order of jobs, so that reports do not vary
  int64_t failed_task = -1;
  const bool is_far = !jobs.empty() && jobs.front().file->is_far();
  std::vector<Buffers> buffers(static_cast<size_t>(is_far            ? kStoreStreams
                                                   : pool != nullptr ? pool->num_threads()
                                                                     : 1));
  const auto read = [&](int64_t task, int worker) {
    try {
      read_job(jobs[static_cast<size_t>(task)], buffers[static_cast<size_t>(worker)]);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (failed_task < 0 || task < failed_task) {
        failed_task = task;
        failure = std::current_exception();
      }
    }
  };
  const auto num_tasks = static_cast<int64_t>(jobs.size());
  if (is_far) {
    run_far(num_tasks, read);
  } else if (pool != nullptr) {
    pool->parallel_for(num_tasks, read);
  } else {
    for (int64_t task = 0; task < num_tasks; ++task) read(task, 0);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

void read_boxes(const Manifest& manifest, std::span<const BoxRead> reads, ThreadPool* pool) {
  const BlocksByFile blocks = plan(manifest, reads);
  for (auto next = blocks.begin(); next != blocks.end();) {
    std::vector<std::unique_ptr<ObjectReader>> files;
    std::vector<Job> jobs;
    for (; next != blocks.end() && files.size() < kOpenFiles; ++next) {
      files.push_back(open_data(manifest, next->first));
      add_jobs(next->second, *files.back(), jobs);
    }
    read_jobs(jobs, pool);
  }
}

}  // namespace tandem
