#include "tandem/launch/round_watch.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {

using Clock = std::chrono::steady_clock;

RoundWatch::RoundWatch(Rendezvous& rendezvous, KeyStore& watch_store, const Round& round, Options options)
    : rendezvous_(rendezvous),
      store_(watch_store),
      round_(round),
      options_(std::move(options)),
      beats_(Rendezvous::prefix(options_.id, round.number), options_.silence) {
  fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd_ < 0) throw IoError("eventfd: {}", std::strerror(errno));
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

RoundWatch::~RoundWatch() {
  thread_.request_stop();
  changed_.notify_all();
  thread_.join();
  ::close(fd_);
}

void RoundWatch::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd_, &one, sizeof(one));
  changed_.notify_all();
}

// One failure of the store is no reason to stop: it may be restarting. Silence is.
void RoundWatch::watch(const std::stop_token& stop) {
  auto last_answer = Clock::now();
  while (!stop.stop_requested()) {
    try {
      look();
      last_answer = Clock::now();
    } catch (const Error& error) {
      if (Clock::now() - last_answer > options_.silence) {
        const std::scoped_lock lock(mutex_);
        store_error_ = error.what();
      }
    }
    std::unique_lock lock(mutex_);
    if (!store_error_.empty() || (end_ && end_->kind != EndKind::Restart)) return wake();
    if (end_ && !std::exchange(end_told_, true)) wake();
    changed_.wait_for(lock, stop, options_.interval, [] { return false; });
  }
}

void RoundWatch::look() {
  const std::string prefix = Rendezvous::prefix(options_.id, round_.number);
  const int own_slot = round_.own().slot;
  store_.set(fmt::format("{}beat/{}", prefix, own_slot), std::to_string(++beat_));
  if (end()) return;
  std::optional<std::string> end = store_.try_get(prefix + "end");
  for (size_t node = 0; node < round_.nodes.size() && !end; ++node) {
    const NodeInfo& other = round_.nodes[node];
    if (other.slot == own_slot || !beats_.is_silent(store_, other.slot)) continue;
    const std::string reason =
        fmt::format("node {} ({}) is gone: its launcher has shown no sign of life for {} s", node, other.host,
                    options_.silence.count() / 1000);
    RoundEnd wanted = options_.end_for(reason, static_cast<int>(ExitCode::Failed));
    wanted.lost = 1;
    wanted.lost_slot = other.slot;
    end = store_.set_if_missing(prefix + "end", wanted.to_text());
  }
  exchange_places(prefix);
  const std::optional<std::string> interrupt = store_.try_get(prefix + "interrupt");
  const bool regroup = options_.takes_newcomers && is_to_regroup(prefix);
  const std::scoped_lock lock(mutex_);
  if (end) end_ = RoundEnd::from_text(*end);
  if (interrupt && interrupt_ == 0) {
    std::tie(interrupt_, interrupted_rank_) = parse_signal_and_rank(*interrupt);
    wake();
  }
  if (regroup && !std::exchange(regroup_, true)) wake();
}

// Another node says so, or somebody who lives waits for a place that there is.
bool RoundWatch::is_to_regroup(const std::string& prefix) {
  if (store_.try_get(prefix + "regroup")) return true;
  const auto count = static_cast<int>(round_.nodes.size());
  if (count >= round_.own().most_nodes) return false;
  const auto joined = static_cast<int>(store_.add(prefix + "joined", 0));
  if (joined - store_.add(prefix + "left", 0) <= count) return false;
  for (int slot = count; slot < joined; ++slot) {
    if (!beats_.is_silent(store_, slot)) return true;
  }
  return false;
}

// Where the ranks of each node are. Of many nodes a part is read in each look.
void RoundWatch::exchange_places(const std::string& prefix) {
  constexpr size_t kNodesALook = 16;
  std::string own;
  {
    const std::scoped_lock lock(mutex_);
    own = own_places_;
    places_.resize(round_.nodes.size());
  }
  const auto key = [&](int slot) { return fmt::format("{}places/{}", prefix, slot); };
  if (!own.empty()) store_.set(key(round_.own().slot), own);
  const size_t parts = (round_.nodes.size() + kNodesALook - 1) / kNodesALook;
  const size_t part = static_cast<size_t>(looks_++) % parts;
  for (size_t node = part; node < round_.nodes.size(); node += parts) {
    if (round_.nodes[node].slot == round_.own().slot) continue;
    std::optional<std::string> text = store_.try_get(key(round_.nodes[node].slot));
    const std::scoped_lock lock(mutex_);
    places_[node] = std::move(text).value_or("");
  }
}

void RoundWatch::share_places(const std::string& text) {
  const std::scoped_lock lock(mutex_);
  own_places_ = text;
}

std::vector<std::string> RoundWatch::places() {
  const std::scoped_lock lock(mutex_);
  return places_;
}

OtherNodes::News RoundWatch::take() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t size = ::read(fd_, &count, sizeof(count));
  const std::scoped_lock lock(mutex_);
  const bool is_final = end_ && end_->kind == EndKind::Stop && is_final_code(end_->code);
  return {end_.has_value() || !store_error_.empty(), is_final, interrupt_, interrupted_rank_, regroup_};
}

// Where the store cannot be told, the ranks here stop all the same, and the watching thread finds it lost.
void RoundWatch::tell_failure(const RankEnd& root, const std::vector<RankEnd>& ends) {
  try {
    RankEnd cause = root;
    if (const auto stopped = rendezvous_.stopped_rank(round_); stopped && !is_own_fault(root)) {
      cause = {};
      std::tie(cause.stopped, cause.rank) = *stopped;
    }
    RoundEnd end = options_.end_for(describe_failure(cause, ends), cause.code());
    end.rank = cause.rank;
    const RoundEnd decided = rendezvous_.end(round_, end);
    const std::scoped_lock lock(mutex_);
    end_ = decided;
  } catch (const CommError&) {
  }
}

void RoundWatch::tell_interrupt(int signal, int rank) {
  try {
    rendezvous_.interrupt(round_, signal, rank);
  } catch (const CommError&) {
  }
}

void RoundWatch::tell_regroup() {
  try {
    rendezvous_.regroup(round_);
  } catch (const CommError&) {
  }
}

bool RoundWatch::is_regrouping() {
  try {
    return rendezvous_.is_regrouping(round_);
  } catch (const CommError&) {
    return false;
  }
}

void RoundWatch::tell_interrupted_rank(int rank) {
  try {
    rendezvous_.note_interrupted(round_, rank);
  } catch (const CommError&) {
  }
}

void RoundWatch::tell_stopped(int rank, int signal) {
  try {
    rendezvous_.note_stopped(round_, rank, signal);
  } catch (const CommError&) {
  }
}

std::optional<RoundEnd> RoundWatch::end() const {
  const std::scoped_lock lock(mutex_);
  return end_;
}

std::optional<RoundEnd> RoundWatch::wait_for_end(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] { return end_.has_value() || !store_error_.empty(); });
  return end_;
}

std::string RoundWatch::store_error() const {
  const std::scoped_lock lock(mutex_);
  return store_error_;
}

}  // namespace tandem
