// A thread that asks for notices while a run trains. One process a node has it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "tandem/config/config.h"
#include "tandem/watch/spot/clouds.h"

namespace tandem::spot {

class Watcher {
 public:
  // Both are called by the watcher's thread: `on_notice` once, `tell` with a sentence for the log. A server
  // that cannot be reached never ends anything: it is told once, and asked on.
  struct Listener {
    std::function<void(const Notice&)> on_notice;
    std::function<void(const std::string&)> tell;
  };

  Watcher(const SpotConfig& config, Listener listener);  // does nothing where the config asks for nothing
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  void watch();
  std::unique_ptr<Source> find_source();
  std::optional<Notice> ask(Source* source);
  std::optional<Notice> look_at_file() const;
  bool sleep(std::chrono::milliseconds time);  // false: the end has come

  SpotConfig config_;
  Listener listener_;
  std::atomic<bool> ending_{false};
  bool is_told_ = false;  // that the server does not answer
  std::mutex mutex_;
  std::condition_variable ended_;
  std::thread thread_;
};

}  // namespace tandem::spot
