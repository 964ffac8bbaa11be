// How the run stands, as rank 0 sees it: status.json about once a second, who is slow, how long it will take.
// Under a launcher a thread writes it where steps take longer, with what the launcher knows of all ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tandem/metrics/run_status.h"

namespace tandem {

class RunWatch {
 public:
  RunWatch(std::filesystem::path run_dir, int64_t steps, int num_ranks);

  void begin(std::string device);

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
  std::string take_trouble();

 private:
  using Clock = std::chrono::steady_clock;
  void write();  // with the mutex held
  void write_between_steps(const std::stop_token& stop);

  std::filesystem::path run_dir_;
  int num_ranks_;
  mutable std::mutex mutex_;  // of all that follows
  RunStatus status_;
  StragglerWatch stragglers_;
  std::optional<StragglerWatch::News> straggler_;
  std::atomic<int64_t> last_checkpoint_{0};
  std::optional<Clock::time_point> first_time_;
  int64_t first_step_ = 0;
  Clock::time_point looked_;
  std::string trouble_;
  bool failing_ = false;
  Clock::time_point written_;
  std::condition_variable_any stopping_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace tandem
