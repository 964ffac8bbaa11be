// A lock that is a file, for file systems whose own locks do not work: it names its holder, who counts in it
// up every few seconds. One that a process of this machine left that has ended, or that nobody has counted in
// for a while, is of the dead and is taken over.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace tandem {

struct LeaseTimes {
  double count_s = 3;   // between two counts
  double watch_s = 15;  // in which another holder has to count once, or is taken for dead
};

class Lease {
 public:
  // Null where another holder lives; `holder` then says who, "process 4711 on node-b". Watching one of
  // another machine takes up to watch_s. Throws IoError.
  static std::unique_ptr<Lease> take(const std::filesystem::path& file, std::string& holder,
                                     LeaseTimes times = {});
  ~Lease();  // gives it back
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  Lease(std::filesystem::path file, LeaseTimes times);
  void count();
  void write() const;

  std::filesystem::path file_;
  LeaseTimes times_;
  uint64_t counted_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread counter_;
};

}  // namespace tandem
