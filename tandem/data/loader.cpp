#include "tandem/data/loader.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <system_error>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/base/system.h"

namespace tandem {
namespace {

int64_t num_slots(const LoaderOptions& options) {
  return options.workers == 0 ? 1 : options.prefetch + 1;  // one more: the one the caller is reading
}

int64_t padded(int64_t bytes) {
  constexpr auto kAlignment = static_cast<int64_t>(Loader::kAlignment);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Tokens and pixels are both four bytes wide.
int64_t input_bytes(const SampleSpec& spec, const LoaderOptions& options) {
  static_assert(sizeof(int32_t) == sizeof(float));
  return padded(options.micro_batch * spec.input_elems() * static_cast<int64_t>(sizeof(float)));
}

int64_t target_bytes(const SampleSpec& spec, const LoaderOptions& options) {
  return padded(options.micro_batch * spec.num_targets() * static_cast<int64_t>(sizeof(int32_t)));
}

// Of segments, and as many of positions.
int64_t document_bytes(const SampleSpec& spec, const LoaderOptions& options) {
  return spec.documents ? input_bytes(spec, options) : 0;
}

// Of partners, and as many of shares.
int64_t mixing_bytes(const SampleSpec& spec, const LoaderOptions& options) {
  return spec.mixed ? target_bytes(spec, options) : 0;
}

Sampler sampler_of(const Dataset& dataset, const LoaderOptions& options) {
  const int64_t count = dataset.num_samples();
  if (options.pass == Pass::Shuffled) return Sampler(dataset.parts(), true, options.seed);
  const bool is_part = options.max_samples > 0 && options.max_samples < count;
  // Of one key, whatever the seed: runs are compared by these losses.
  return Sampler(count, is_part && dataset.is_in_order(), hash_name("evaluation"));
}

}  // namespace

int64_t loader_bytes(const SampleSpec& spec, const LoaderOptions& options) {
  return num_slots(options) * (input_bytes(spec, options) + target_bytes(spec, options) +
                               2 * document_bytes(spec, options) + 2 * mixing_bytes(spec, options));
}

Loader::Loader(const Dataset& dataset, const LoaderOptions& options, std::span<std::byte> memory)
    : dataset_(dataset),
      spec_(dataset.spec()),
      options_(options),
      sampler_(sampler_of(dataset, options)),
      slots_(static_cast<size_t>(num_slots(options))) {
  TANDEM_CHECK(dataset.num_samples() > 0 && options.micro_batch > 0 && options.world_size > 0);
  TANDEM_CHECK(!spec_.documents || spec_.kind == SampleKind::Tokens);
  TANDEM_CHECK(!spec_.mixed || spec_.kind == SampleKind::Images);
  TANDEM_CHECK(options.rank >= 0 && options.rank < options.world_size);
  const int64_t unit = options.micro_batch * (options.dealt ? 1 : options.world_size);
  TANDEM_CHECK(options.global_batch > 0 && options.global_batch % unit == 0);
  for (const BatchStretch& stretch : options.ramp)
    TANDEM_CHECK(stretch.global_batch > 0 && stretch.global_batch % unit == 0);
  TANDEM_CHECK(options.workers >= 0 && (options.workers == 0 || options.prefetch > 0));
  TANDEM_CHECK(static_cast<int64_t>(memory.size()) >= loader_bytes(spec_, options));
  TANDEM_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % kAlignment == 0);
  std::byte* at = memory.data();
  for (Slot& slot : slots_) {
    slot.input = at;
    at += input_bytes(spec_, options_);
    slot.targets = reinterpret_cast<int32_t*>(at);
    at += target_bytes(spec_, options_);
    if (spec_.mixed) {
      slot.partners = reinterpret_cast<int32_t*>(at);
      slot.shares = reinterpret_cast<float*>(at + mixing_bytes(spec_, options_));
      at += 2 * mixing_bytes(spec_, options_);
    }
    if (!spec_.documents) continue;
    slot.segments = reinterpret_cast<int32_t*>(at);
    slot.positions = reinterpret_cast<int32_t*>(at + document_bytes(spec_, options_));
    at += 2 * document_bytes(spec_, options_);
  }
  start();
}

Loader::~Loader() { stop(); }

// No more threads than slots to fill: others would find nothing to do.
void Loader::start() {
  const auto count = std::min(options_.workers, static_cast<int64_t>(slots_.size()));
  try {
    for (int64_t i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    stop();
    throw DeviceError("threads: cannot start {} to prepare batches: {}; set data.workers lower", count,
                      error.what());
  }
}

void Loader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  claimable_.notify_all();
  threads_.clear();  // joins
}

int64_t Loader::num_micro_batches() const {
  TANDEM_CHECK(options_.pass == Pass::Once, "a shuffled pass has no end");
  const int64_t num_batches = (num_samples_once() + options_.global_batch - 1) / options_.global_batch;
  return num_batches * micro_batches_in(options_.global_batch);
}

Loader::BatchPlace Loader::batch_of(int64_t micro_batch) const {
  int64_t begin = origin_, batches = batches_;
  for (const BatchStretch& stretch : options_.ramp) {
    const int64_t count = std::max<int64_t>(0, stretch.up_to - batches);
    const int64_t each = micro_batches_in(stretch.global_batch);
    if (micro_batch < count * each)
      return {begin + micro_batch / each * stretch.global_batch, stretch.global_batch, micro_batch % each};
    micro_batch -= count * each;
    begin += count * stretch.global_batch;
    batches += count;
  }
  const int64_t each = micro_batches_in(options_.global_batch);
  return {begin + micro_batch / each * options_.global_batch, options_.global_batch, micro_batch % each};
}

int64_t Loader::first_sample_of(int64_t micro_batch) const {
  const BatchPlace batch = batch_of(micro_batch);
  if (options_.dealt) {
    const int64_t first = (batch.within * options_.world_size + options_.rank) * options_.micro_batch;
    return first < batch.size ? batch.begin + first : kNone;
  }
  return batch.begin + options_.rank * (batch.size / options_.world_size) +
         batch.within * options_.micro_batch;
}

int64_t Loader::valid_targets(int64_t first_sample, int64_t count) const {
  int64_t sum = 0;
  for (int64_t sample = first_sample; sample < first_sample + count; ++sample) {
    if (!is_padding(sample)) sum += dataset_.num_valid_targets(sampler_.index(sample));
  }
  return sum;
}

void Loader::fill(Slot& slot, int64_t first_sample) const {
  const int64_t input_elems = spec_.input_elems(), num_targets = spec_.num_targets();
  for (int64_t row = 0; row < options_.micro_batch; ++row) {
    SampleBuffers out{.targets = slot.targets + row * num_targets};
    if (slot.segments) {
      out.segments = slot.segments + row * input_elems;
      out.positions = slot.positions + row * input_elems;
      std::fill_n(out.segments, input_elems, 0);
      std::iota(out.positions, out.positions + input_elems, 0);
    }
    if (first_sample == kNone || is_padding(first_sample + row)) {
      std::fill_n(slot.input + row * input_elems * 4, input_elems * 4, std::byte{0});
      std::fill_n(out.targets, num_targets, kNoTarget);
      if (slot.partners) {
        slot.partners[row] = kNoTarget;
        slot.shares[row] = 1;
      }
      continue;
    }
    if (spec_.kind == SampleKind::Tokens) {
      out.tokens = reinterpret_cast<int32_t*>(slot.input) + row * input_elems;
    } else {
      out.image = reinterpret_cast<float*>(slot.input) + row * input_elems;
    }
    if (options_.pass == Pass::Shuffled) out.draw = first_sample + row;
    if (slot.partners) {
      out.partner = slot.partners + row;
      out.share = slot.shares + row;
    }
    dataset_.fill(sampler_.index(first_sample + row), out);
  }
  slot.num_valid_targets = first_sample == kNone ? 0 : valid_targets(first_sample, options_.micro_batch);
}

// The set knows in the order in which it will be asked what the next few hundred samples are.
void Loader::expect_behind(int64_t micro_batch) {
  constexpr int64_t kSamplesAhead = 256;
  const int64_t end = micro_batch + 1 + (kSamplesAhead + options_.micro_batch - 1) / options_.micro_batch;
  for (expected_ = std::max(expected_, micro_batch); expected_ < end; ++expected_) {
    const int64_t first = first_sample_of(expected_);
    if (first == kNone) continue;
    for (int64_t row = 0; row < options_.micro_batch; ++row) {
      if (!is_padding(first + row)) dataset_.expect(sampler_.index(first + row));
    }
  }
}

void Loader::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    claimable_.wait(lock, [this] {
      return stop_ || (!paused_ && claimed_ < released_ + static_cast<int64_t>(slots_.size()));
    });
    if (stop_) return;
    const int64_t micro_batch = claimed_++;
    const int64_t first_sample = first_sample_of(micro_batch);
    expect_behind(micro_batch);
    Slot& slot = slot_of(micro_batch);
    ++num_busy_;
    lock.unlock();
    std::exception_ptr error;
    try {
      fill(slot, first_sample);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    slot.error = error;
    slot.holds = micro_batch;
    --num_busy_;
    changed_.notify_all();
  }
}

MicroBatch Loader::next() {
  const double start = steady_s();
  std::unique_lock lock(mutex_);
  Slot& slot = slot_of(delivered_);
  const BatchPlace place = batch_of(delivered_);
  const int64_t first = first_sample_of(delivered_);
  const int64_t first_sample = first == kNone ? place.begin : first;
  // Of a batch that is dealt out, the last one's: it does not depend on who asks.
  const int64_t counted = options_.dealt ? place.begin + place.size - options_.micro_batch : first_sample;
  if (options_.workers == 0) {
    expect_behind(delivered_);
    fill(slot, first);
  } else {
    released_ = delivered_;
    claimable_.notify_all();
    const bool made = changed_.wait_for(lock, std::chrono::duration<double>(options_.timeout_s),
                                        [&] { return slot.holds == delivered_; });
    if (!made)
      throw IoError("data: no micro-batch after {:.0f} s: the data set does not answer", options_.timeout_s);
    if (slot.error) std::rethrow_exception(slot.error);
  }
  ++delivered_;
  MicroBatch batch{.targets = slot.targets,
                   .segments = slot.segments,
                   .positions = slot.positions,
                   .partners = slot.partners,
                   .shares = slot.shares,
                   .epoch = sampler_.epoch(counted),
                   .first_sample = first_sample,
                   .num_valid_targets = slot.num_valid_targets};
  if (spec_.kind == SampleKind::Tokens) {
    batch.tokens = reinterpret_cast<const int32_t*>(slot.input);
  } else {
    batch.images = reinterpret_cast<const float*>(slot.input);
  }
  batch.wait_s = steady_s() - start;
  return batch;
}

int64_t Loader::position() const {
  const std::lock_guard lock(mutex_);
  return batch_of(delivered_).begin;
}

int64_t Loader::batch_size() const {
  const std::lock_guard lock(mutex_);
  return batch_of(delivered_).size;
}

void Loader::seek(int64_t position, const std::optional<MixtureStart>& start, int64_t batches) {
  TANDEM_CHECK(position >= 0 && batches >= 0);
  std::unique_lock lock(mutex_);
  paused_ = true;
  const bool idle = changed_.wait_for(lock, std::chrono::duration<double>(options_.timeout_s),
                                      [this] { return num_busy_ == 0; });
  if (!idle) throw IoError("data: a worker is still busy after {:.0f} s", options_.timeout_s);
  for (Slot& slot : slots_) {
    slot.holds = -1;
    slot.error = nullptr;
  }
  if (start) sampler_.begin(*start);
  origin_ = position;
  batches_ = batches;
  claimed_ = expected_ = released_ = delivered_ = 0;
  paused_ = false;
  claimable_.notify_all();
}

}  // namespace tandem
