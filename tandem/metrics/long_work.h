// Progress of work that may take a while and is no training: nothing while it is quick, then how far it is;
// on a terminal in one line that goes in the end, in a log a line now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

namespace tandem {

class LongWork {
 public:
  using Duration = std::chrono::milliseconds;
  static constexpr Duration kUsual{-1};  // 3 s in a log; on a terminal 1 s, then a few times a second

  // "reading weights"; of a rank that tells nothing, `quiet`.
  LongWork(std::string what, int64_t total_bytes, bool quiet = false, std::FILE* out = stderr,
           Duration between = kUsual);
  ~LongWork();
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;

  void done(int64_t bytes);  // more of them; by any thread

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  int64_t total_;
  bool quiet_;
  std::FILE* out_;
  bool terminal_;
  Duration first_, between_;
  std::mutex mutex_;
  int64_t done_ = 0;
  bool told_any_ = false;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point told_ = began_;
};

}  // namespace tandem
