// While the ranks of a round run, a thread with a store connection of its own: shows that this launcher
// lives, and notices when the round has ended, a signal was given to another node, another launcher has gone
// silent, more nodes wait for a place, or the store cannot be reached any more. It shows its life to the
// last, when the round is over and the ranks here still end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tandem/comm/key_store/key_store.h"
#include "tandem/launch/rendezvous.h"
#include "tandem/launch/supervisor.h"

namespace tandem {

class RoundWatch final : public OtherNodes {
 public:
  struct Options {
    std::string id;
    std::chrono::milliseconds interval{1000};
    std::chrono::milliseconds silence{10000};  // of a launcher or of the store
    bool takes_newcomers = false;              // who waits for a place is let in at the next step
    // How the round ends for a failure with this description and exit code.
    std::function<RoundEnd(const std::string& reason, int exit_code)> end_for;
  };
  RoundWatch(Rendezvous& rendezvous, KeyStore& watch_store, const Round& round, Options options);
  ~RoundWatch() override;

  int fd() const override { return fd_; }
  News take() override;
  void tell_failure(const RankEnd& root, const std::vector<RankEnd>& ends) override;
  void tell_interrupt(int signal, int rank) override;
  void tell_interrupted_rank(int rank) override;
  void tell_stopped(int rank, int signal) override;
  void tell_regroup() override;
  bool is_regrouping() override;
  void share_places(const std::string& text) override;
  std::vector<std::string> places() override;

  std::optional<RoundEnd> end() const;  // how the round has ended, if it has
  // Waits until the round has ended, or `limit` is over.
  std::optional<RoundEnd> wait_for_end(std::chrono::milliseconds limit);
  std::string store_error() const;  // why the store counts as lost; empty while it does not

 private:
  void watch(const std::stop_token& stop);
  void look();  // one look at the store
  bool is_to_regroup(const std::string& prefix);
  void exchange_places(const std::string& prefix);
  void wake();

  Rendezvous& rendezvous_;
  KeyStore& store_;
  const Round round_;
  const Options options_;
  int fd_ = -1;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<RoundEnd> end_;
  bool end_told_ = false;
  int interrupt_ = 0, interrupted_rank_ = -1;
  bool regroup_ = false;
  std::string store_error_;
  std::string own_places_;
  std::vector<std::string> places_;  // by node
  int64_t looks_ = 0;
  BeatWatch beats_;
  int64_t beat_ = 1'000'000;  // the joining has counted from 0
  std::jthread thread_;       // last: it uses the others
};

}  // namespace tandem
