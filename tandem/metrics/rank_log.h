// logs/rank-<n>.log of a run: what a rank has to say while it trains, every line with its time. Rank 0's is
// what the terminal shows; the others' show how far each of them came, and why it stopped.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>

#include "tandem/metrics/progress.h"

namespace tandem {

class RankLog {
 public:
  // Goes on behind what is there. Throws IoError.
  RankLog(const std::filesystem::path& run_dir, int rank, int64_t total_steps);

  void line(std::string_view text) { lines_.message(text); }
  void step(const StepRecord& record) { lines_.update(record); }  // a line now and then

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  Progress lines_;
};

}  // namespace tandem
