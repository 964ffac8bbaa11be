// logs/rank-<n>.log of a run: what a rank has to say while it trains, every line with its time. Rank 0's is
// what the terminal shows; the others' show how far each of them came, and why it stopped.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>

#include "tandem/metrics/progress.h"

namespace tandem {

class RankLog {
 public:
  // Goes on behind what is there. Throws IoError.
  RankLog(const std::filesystem::path& run_dir, int rank, int64_t total_steps);

  // By any thread.
  void line(std::string_view text) {
    const std::lock_guard lock(mutex_);
    lines_.message(text);
  }
  void step(const StepRecord& record) {  // a line now and then
    const std::lock_guard lock(mutex_);
    lines_.update(record);
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::mutex mutex_;
  Progress lines_;
};

}  // namespace tandem
