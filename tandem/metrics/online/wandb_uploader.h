// Sends what a .wandb file holds to W&B's server while the file grows. A thread does it, so that training
// never waits. What has not reached the server waits in the file, not in memory: an hour without a network or
// a kill costs nothing, and it is caught up.
//
// The server says up to which step it has the run, and in how many lines. A run that resumes behind an
// earlier step puts the steps that it takes again at the lines that they have there already, so that each
// step is there once. What it has of such steps may still be what they were before: a file beside, NAME.sent,
// says up to which step the server has what the file has.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tandem/metrics/online/wandb_api.h"

namespace tandem::wandb {

struct Patience {
  std::chrono::milliseconds interval{5000};    // between two requests with lines
  std::chrono::milliseconds heartbeat{30000};  // and two of any kind
  std::chrono::milliseconds retry{1000};       // after a failure; twice as long after each
  std::chrono::milliseconds most_retry{60000};
  std::chrono::milliseconds at_end{20000};         // for what is left when the run is done
  std::chrono::milliseconds at_stop{5000};         // and where it is stopped, and will go on
  std::chrono::milliseconds at_end_failing{3000};  // where the server was not reached before
  size_t request_bytes = size_t{1} << 20;          // of lines in a request, or one line
};

class Uploader {
 public:
  // Rows up to step `last` stay as they are, those after it may be other ones on the server.
  Uploader(Access access, RunFacts run, std::filesystem::path file, int64_t last, Patience patience);
  ~Uploader();  // as end(false), where it was not called
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  void grown(int64_t bytes);  // the file has so many, whole records all of them

  // Sends what is left, for as long as it has patience; `complete`: the run is done. Whether all of it was.
  bool end(bool complete);

  // Sentences about what could not be sent, since the last call: one for a row of failures, one for its end.
  std::vector<std::string> take_news();

 private:
  using Clock = std::chrono::steady_clock;

  struct Batch {
    Lines lines;
    int64_t end = 0;        // of the file, behind its last row
    int64_t last_step = 0;  // of it; 0 for none
    bool all = true;        // nothing follows
  };

  void work();
  bool act(int64_t bytes, bool ending);  // true where the server has all of them; throws
  void connect();
  void note_sent(int64_t step);
  Batch read_batch(int64_t bytes) const;
  void note_failure(const std::string& why);
  void note_success();
  bool given_up();

  const RunFacts run_;
  const std::filesystem::path file_;
  const int64_t last_;
  const Patience patience_;
  const int64_t known_sent_;  // up to this step nothing has changed since the server took it

  // The thread's.
  Api api_;
  std::optional<Place> place_;
  int64_t line_ = 0;      // on the server, of the next row
  int64_t after_ = 0;     // rows up to this step are there
  int64_t position_ = 0;  // in the file
  Clock::time_point sent_{};

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t bytes_ = 0;
  bool ending_ = false, complete_ = false, failing_ = false, finished_ = false;
  Clock::time_point give_up_ = Clock::time_point::max();
  std::vector<std::string> news_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tandem::wandb
