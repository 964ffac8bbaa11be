// Micro-batches in order, made ahead of time by worker threads in memory that the caller planned. What is
// delivered depends on the position alone: not on the number of workers, and, over all ranks together, not on
// the world size, because each rank takes its slice of every global batch.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/sampler.h"

namespace tandem {

enum class Pass {
  Shuffled,  // without end, a new order each epoch: training
  Once,      // every sample once, padded with samples without targets: evaluation
};

// The global batches up to that number, counted from 1, are of another size.
struct BatchStretch {
  int64_t up_to = 0;
  int64_t global_batch = 1;
};

struct LoaderOptions {
  Pass pass = Pass::Shuffled;
  int64_t global_batch = 1;             // samples over all ranks; a multiple of micro_batch * world_size
  std::vector<BatchStretch> ramp = {};  // sizes before that one, in order; such multiples, too
  int64_t micro_batch = 1;
  int64_t rank = 0, world_size = 1;
  // Micro-batches of a global batch go to the ranks in turn, and not in one piece for each: then the batch
  // need be a multiple of micro_batch only. Where the last turn has none for a rank, it gets one without
  // targets.
  bool dealt = false;
  int64_t workers = 0;   // threads; 0 = next() makes the micro-batch itself
  int64_t prefetch = 4;  // micro-batches made ahead, at least 1 where there are workers
  uint64_t seed = 1;     // of the order
  // Pass::Once: that many samples, always the same; of a set in order, spread over all of it. 0 = all.
  int64_t max_samples = 0;
  double timeout_s = 300.0;
};

struct MicroBatch {
  const int32_t* tokens = nullptr;     // [micro_batch, context]
  const float* images = nullptr;       // [micro_batch, height, width, channels]
  const int32_t* targets = nullptr;    // [micro_batch, context] or [micro_batch]
  const int32_t* segments = nullptr;   // [micro_batch, context], with SampleSpec::documents: which one, in
  const int32_t* positions = nullptr;  // its row, and where in it
  const int32_t* partners = nullptr;  // [micro_batch], with SampleSpec::mixed: the other label, and the share
  const float* shares = nullptr;      // of the target
  int64_t epoch = 0;
  int64_t first_sample = 0;  // global number; without targets, of the batch
  int64_t num_valid_targets = 0;
  double wait_s = 0.0;  // how long next() kept its caller waiting
};

int64_t loader_bytes(const SampleSpec& spec, const LoaderOptions& options);

class Loader {
 public:
  static constexpr size_t kAlignment = 64;

  // `memory` holds at least loader_bytes, aligned; it and `dataset` outlive the loader.
  Loader(const Dataset& dataset, const LoaderOptions& options, std::span<std::byte> memory);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next micro-batch of this rank, valid until the next call. Throws what the data set threw when the
  // micro-batch was made, and goes on throwing it until a seek.
  MicroBatch next();

  // Where the next global batch begins, counted in samples over all ranks: what a checkpoint stores. A global
  // batch counts once its last micro-batch has been delivered.
  int64_t position() const;
  // The next global batch begins there, and is the one after `batches` others; of a mixture, that its sets
  // are drawn from anew may be said, too.
  void seek(int64_t position, const std::optional<MixtureStart>& start = std::nullopt, int64_t batches = 0);
  // Samples of the global batch that next() is in, or begins.
  int64_t batch_size() const;
  const Sampler& sampler() const { return sampler_; }

  // Targets in samples [first, first + count) of all ranks: the weight of a global batch, known before it
  // runs.
  int64_t valid_targets(int64_t first_sample, int64_t count) const;

  int64_t micro_batches_in(int64_t global_batch) const {  // of each rank
    const int64_t all = global_batch / options_.micro_batch;
    return (all + options_.world_size - 1) / options_.world_size;
  }
  int64_t num_micro_batches() const;  // Pass::Once: how often next() may be called from position 0

 private:
  struct Slot {
    std::byte* input = nullptr;
    int32_t* targets = nullptr;
    int32_t* segments = nullptr;  // null without SampleSpec::documents
    int32_t* positions = nullptr;
    int32_t* partners = nullptr;  // null without SampleSpec::mixed
    float* shares = nullptr;
    int64_t holds = -1;  // the micro-batch it was filled with
    int64_t num_valid_targets = 0;
    std::exception_ptr error;
  };

  Slot& slot_of(int64_t micro_batch) { return slots_[static_cast<size_t>(micro_batch) % slots_.size()]; }
  // Where a micro-batch, counted from origin_, lies.
  struct BatchPlace {
    int64_t begin = 0;  // first sample of its global batch
    int64_t size = 0;   // of that
    int64_t within = 0;
  };
  BatchPlace batch_of(int64_t micro_batch) const;
  int64_t first_sample_of(int64_t micro_batch) const;  // kNone: the batch has none left for this rank
  bool is_padding(int64_t sample) const {
    return options_.pass == Pass::Once && sample >= num_samples_once();
  }
  int64_t num_samples_once() const {
    const int64_t all = dataset_.num_samples();
    return options_.max_samples > 0 ? std::min(all, options_.max_samples) : all;
  }
  static constexpr int64_t kNone = -1;
  void fill(Slot& slot, int64_t first_sample) const;
  void expect_behind(int64_t micro_batch);  // with the lock
  void start();
  void stop();
  void work();

  const Dataset& dataset_;
  const SampleSpec spec_;
  const LoaderOptions options_;
  Sampler sampler_;          // changes while nobody works alone
  std::vector<Slot> slots_;  // a ring: micro-batch m, counted from origin_, lives in slot m % size

  mutable std::mutex mutex_;  // guards what follows, and who owns which slot
  std::condition_variable claimable_, changed_;
  int64_t origin_ = 0;     // the position of the last seek
  int64_t batches_ = 0;    // global batches before it
  int64_t claimed_ = 0;    // micro-batches that workers have begun
  int64_t expected_ = 0;   // micro-batches that the data set was told of
  int64_t released_ = 0;   // micro-batches whose slots may be filled again
  int64_t delivered_ = 0;  // micro-batches that next() has returned
  int64_t num_busy_ = 0;
  bool paused_ = false, stop_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace tandem
