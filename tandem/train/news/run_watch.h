// How the run stands, as rank 0 sees it: status.json about once a second, who is slow, how long it will take.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "tandem/metrics/run_status.h"

namespace tandem {

class RunWatch {
 public:
  RunWatch(std::filesystem::path run_dir, int64_t steps, int num_ranks);

  void begin(std::string device) { status_.device = std::move(device); }

  // Another state: running, done, failed. Written at once.
  void set_state(std::string state, std::string message = "");

  // A step is done. True where this has looked at the other ranks, and written status.json.
  bool add(const StepRecord& record);

  void add_save(int64_t step) { last_checkpoint_ = step; }  // any thread may

  // That a rank has become one that others wait for, since the last call.
  std::optional<StragglerWatch::News> take_straggler() { return std::exchange(straggler_, std::nullopt); }

  // "slowest: rank 3 on node-b, busy 512 ms of 600, the others 380"; empty on one rank.
  std::string slowest() const;

  // What keeps status.json from being written, told once; empty where nothing does.
  std::string take_trouble() { return std::exchange(trouble_, ""); }

 private:
  using Clock = std::chrono::steady_clock;
  void write();

  std::filesystem::path run_dir_;
  int num_ranks_;
  RunStatus status_;
  StragglerWatch stragglers_;
  std::optional<StragglerWatch::News> straggler_;
  std::atomic<int64_t> last_checkpoint_{0};
  std::optional<Clock::time_point> first_time_;
  int64_t first_step_ = 0;
  Clock::time_point looked_;
  std::string trouble_;
  bool failing_ = false;
};

}  // namespace tandem
