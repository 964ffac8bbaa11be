#include "tandem/data/prepare/block_team.h"

#include <algorithm>
#include <system_error>

#include "tandem/base/error.h"

namespace tandem {

BlockTeam::BlockTeam(std::span<const InputFile> files, const BlockOptions& reading,
                     const EncodeOptions& encoding, const Tokenizer& tokenizer, const WorkPlace& from,
                     int num_threads)
    : files_(files),
      reading_(reading),
      encoding_(encoding),
      tokenizer_(tokenizer),
      from_(from),
      most_open_(static_cast<size_t>(num_threads) + 1),
      most_waiting_(4 * int64_t{num_threads}),
      state_(files.size()),
      front_(from.file) {
  TANDEM_CHECK(num_threads >= 1);
  try {
    for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    stop();
    throw DeviceError("threads: cannot start {}: {}; use --threads", num_threads, error.what());
  }
}

BlockTeam::~BlockTeam() { stop(); }

void BlockTeam::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  claimable_.notify_all();
  threads_.clear();  // joins
}

// The block that next() is waiting for may always be made: else all could wait for it.
bool BlockTeam::may_claim(size_t file) const {
  if (state_[file].busy || state_[file].ended) return false;
  return waiting_ < most_waiting_ || (file == front_ && state_[file].num_claimed == taken_);
}

std::optional<size_t> BlockTeam::claim() {
  for (size_t file = front_, open = 0; file < files_.size() && open < most_open_; ++file) {
    if (may_claim(file)) return file;
    open += state_[file].ended ? 0 : 1;
  }
  return std::nullopt;
}

void BlockTeam::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::optional<size_t> claimed;
    claimable_.wait(lock, [&] { return stop_ || (claimed = claim()).has_value(); });
    if (stop_) return;
    const size_t number = *claimed;
    File& file = state_[number];
    file.busy = true;
    ++waiting_;
    const int64_t block_number = file.num_claimed++;
    lock.unlock();
    Done done;
    std::optional<Block> block;
    try {
      if (!file.reader)
        file.reader = read_blocks(files_[number], reading_, tokenizer_,
                                  number == from_.file ? from_.block : BlockPlace{});
      block = file.reader->next();
    } catch (...) {
      done.error = std::current_exception();
    }
    lock.lock();
    file.busy = false;
    if (!block) {  // no more of this file, or an error that ends it
      file.ended = true;
      file.reader.reset();
      if (!done.error) --file.num_claimed;
    }
    claimable_.notify_all();
    if (block) {
      lock.unlock();
      block->file = number;
      try {
        done.result.encoded = encode_block(*block, files_[number], encoding_, tokenizer_);
        done.result.next = {number, block->end};
        done.result.consumed = block->consumed;
      } catch (...) {
        done.error = std::current_exception();
      }
      block->owner.reset();
      lock.lock();
    }
    if (block || done.error) {
      done_.emplace(std::pair{number, block_number}, std::move(done));
    } else {
      --waiting_;
    }
    changed_.notify_all();
  }
}

std::optional<BlockTeam::Result> BlockTeam::next() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (front_ == files_.size()) return std::nullopt;
    const auto found = done_.find({front_, taken_});
    if (found != done_.end()) {
      Done done = std::move(found->second);
      done_.erase(found);
      ++taken_;
      --waiting_;
      claimable_.notify_all();
      if (done.error) std::rethrow_exception(done.error);
      return std::move(done.result);
    }
    if (state_[front_].ended && state_[front_].num_claimed == taken_) {
      ++front_;
      taken_ = 0;
      claimable_.notify_all();
      continue;
    }
    changed_.wait(lock);
  }
}

}  // namespace tandem
