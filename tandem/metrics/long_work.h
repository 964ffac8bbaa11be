// Progress of work that may take a while and is no training: nothing while it is quick, then a line now and
// then.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

namespace tandem {

class LongWork {
 public:
  // "reading weights"; of a rank that tells nothing, `quiet`.
  LongWork(std::string what, int64_t total_bytes, bool quiet = false, std::FILE* out = stderr)
      : what_(std::move(what)), total_(total_bytes), quiet_(quiet), out_(out) {}

  void done(int64_t bytes);  // more of them; by any thread

 private:
  std::string what_;
  int64_t total_;
  bool quiet_;
  std::FILE* out_;
  std::mutex mutex_;
  int64_t done_ = 0;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};

}  // namespace tandem
