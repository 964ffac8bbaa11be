// Tells a URL what happens to a run (log.webhook): a JSON object for each event that somebody may want to be
// woken for. A thread sends them, so that training never waits; each is tried a few times.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tandem/http/client.h"

namespace tandem {

class Webhook {
 public:
  struct Patience {
    int tries = 3;
    std::chrono::milliseconds call{5000};  // for one of them
    std::chrono::milliseconds between{1000};
    std::chrono::milliseconds at_end{5000};  // for what is left when the run ends
    size_t most = 100;                       // that wait; of more, the oldest are dropped
  };
  Webhook(std::string url, const std::filesystem::path& run_dir, Patience patience);
  Webhook(std::string url, const std::filesystem::path& run_dir)
      : Webhook(std::move(url), run_dir, Patience{}) {}
  ~Webhook();  // sends what is left, for as long as it has patience
  Webhook(const Webhook&) = delete;
  Webhook& operator=(const Webhook&) = delete;

  static bool is_told(std::string_view type);  // whether events of that type are sent

  // {run, host, time, type, message, text} and the fields. `text` is all of it in words, which chat programs
  // show. Any thread may.
  void tell(std::string_view type, std::string_view message, const nlohmann::json& fields);

  // Sentences about what could not be sent, since the last call: the first of a row of failures.
  std::vector<std::string> take_troubles();

 private:
  void work();
  std::string deliver(const std::string& body);  // empty, or why it was not

  const std::string url_, run_, host_;
  const Patience patience_;
  http::Client client_;  // the thread's
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  std::vector<std::string> troubles_;
  bool ending_ = false, failing_ = false;
  std::chrono::steady_clock::time_point give_up_ = std::chrono::steady_clock::time_point::max();
  std::jthread thread_;  // last: it uses the others
};

}  // namespace tandem
