// What a run says of itself, in its store: config, plan, metrics, events, logs and summary, copied there
// while it goes on, so that a machine that disappears leaves its story. Each run directory has a folder of
// its own, runs/ID/: nobody writes over another's. Trouble is logged and tried again; training goes on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tandem/store/store.h"

namespace tandem {

struct MirrorOptions {
  std::filesystem::path directory;  // of the run
  std::string id;
  int rank = 0;  // 0 brings what there is one of; each brings its own log
  std::function<void(const std::string&)> log;
};

class RunMirror {
 public:
  RunMirror(StoreRef store, MirrorOptions options);
  ~RunMirror();  // brings the last of it, unless the store does not answer
  RunMirror(const RunMirror&) = delete;
  RunMirror& operator=(const RunMirror&) = delete;

  void wake();  // now is a good moment: a checkpoint has arrived

 private:
  using Clock = std::chrono::steady_clock;
  struct Sent {
    int64_t bytes = -1;
    std::filesystem::file_time_type modified;
    Clock::time_point at;
  };
  std::vector<std::string> files() const;  // relative to the directory
  void work();
  void bring_all(bool last);
  void bring(const std::string& file, bool last);

  StoreRef store_;
  MirrorOptions options_;
  std::map<std::string, Sent> sent_;  // the thread's alone
  std::string trouble_;               // likewise; of the last try
  std::mutex mutex_;
  std::condition_variable changed_;
  bool wake_ = true, stop_ = false;
  std::thread thread_;
};

}  // namespace tandem
