#include "tandem/launch/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/launch/places/verdict_desk.h"
#include "tandem/launch/supervised_rank.h"

namespace tandem {
namespace {

using Rank = SupervisedRank;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLongestWait{1000};
constexpr milliseconds kSettleOwnFault{50};    // a cause is known: only what happened at the same moment
constexpr milliseconds kSettleSuspicion{300};  // perhaps a lost peer: its own end may be noticed later
constexpr milliseconds kSettleLostPeer{2500};  // its peer tells why when it has ended, on whatever node
constexpr milliseconds kDrain{200};            // for output that somebody outside the group holds open
constexpr int64_t kMostDrained = 1 << 20;      // a pipe holds no more
constexpr milliseconds kAfterKill{30000};      // a process the kernel cannot kill, as on a dead disk

class Supervisor {
 public:
  Supervisor(const AttemptSetup& setup, SignalReader& signals, Terminal& terminal, OtherNodes* others)
      : setup_(setup), signals_(signals), terminal_(terminal), others_(others) {}
  ~Supervisor();

  AttemptResult run();

 private:
  enum class Phase { Running, Settling, Stopping, Killing };

  void start();
  void wait_for_events();
  int64_t read_output(Rank& rank, OutputStream stream);  // returns the bytes that there were
  void drain(Rank& rank, OutputStream stream);
  void close_stream(Rank& rank, OutputStream stream);
  void watch_stops(Rank& rank);
  void watch_places();
  bool is_stopped(const Rank& rank) const;
  void reap();
  void settle_ended(Rank& rank);
  void on_interrupted_rank(const Rank& rank);
  void on_signal(int signal);
  void interrupt(int signal, int rank, const std::string& why);
  void regroup();
  void end_from_outside(bool is_final);
  void stop_others();
  void tell_failure();
  void kill_all();
  void send(int signal);
  void on_deadline();
  void settle();
  bool all_ended() const;
  bool awaits_other_nodes() const;
  std::vector<RankEnd> ends() const;

  const AttemptSetup& setup_;
  SignalReader& signals_;
  Terminal& terminal_;
  OtherNodes* const others_;
  std::unique_ptr<VerdictDesk> desk_;
  std::deque<Rank> ranks_;
  Clock::time_point start_ = Clock::now();
  Phase phase_ = Phase::Running;
  std::optional<Clock::time_point> deadline_;
  std::optional<Clock::time_point> first_failure_;
  int interrupted_ = 0;
  int interrupted_rank_ = -1;
  bool stopped_from_outside_ = false;
  bool regrouping_ = false;
  bool failing_ = false;  // the others were told to stop because of a failure, here or on another node
  bool failure_told_ = false;
};

// Only an exception leaves ranks behind.
Supervisor::~Supervisor() {
  for (Rank& rank : ranks_) {
    if (rank.child.pid > 0 && !rank.end) {
      ::kill(-rank.child.pid, SIGKILL);
      while (::waitpid(rank.child.pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    for (OutputStream stream : {OutputStream::Out, OutputStream::Err}) {
      if (rank.fd(stream) >= 0) ::close(rank.fd(stream));
    }
  }
}

void Supervisor::start() {
  std::vector<ChildSetup> children;
  const auto terminal_for = [&](Show show, OutputStream stream) {
    return show == Show::AsItIs && terminal_.is_terminal(stream) ? terminal_.fd(stream) : -1;
  };
  for (const RankSetup& rank : setup_.ranks) {
    children.push_back({setup_.program, rank.environment, terminal_for(rank.show_out, OutputStream::Out),
                        terminal_for(rank.show_err, OutputStream::Err)});
  }
  for (const RankSetup& rank : setup_.ranks) {
    ranks_.emplace_back(rank, terminal_, setup_.filter);
    rank.notes.remove();  // left there by a launcher that was killed
  }
  const std::vector<Child> started = start_children(children, signals_.outer_mask());
  for (size_t i = 0; i < started.size(); ++i) {
    ranks_[i].child = started[i];
    ranks_[i].output.log_line(
        fmt::format("--- {}, rank {}, pid {}", setup_.heading, ranks_[i].number, started[i].pid));
  }
  start_ = Clock::now();
  desk_ = VerdictDesk::make(setup_, terminal_, others_);
}

AttemptResult Supervisor::run() {
  start();
  while (!all_ended() || awaits_other_nodes()) {
    wait_for_events();
    if (deadline_ && Clock::now() >= *deadline_) on_deadline();
    if (setup_.regroup_after && phase_ == Phase::Running && Clock::now() >= start_ + *setup_.regroup_after)
      regroup();
  }
  if (first_failure_) tell_failure();
  if (desk_) desk_->write();
  return {ends(), interrupted_, interrupted_rank_, stopped_from_outside_, regrouping_};
}

bool Supervisor::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.end.has_value(); });
}

// The ranks here have missed a peer that is not here: its node is about to tell why it is gone.
bool Supervisor::awaits_other_nodes() const {
  if (others_ == nullptr || phase_ != Phase::Settling || stopped_from_outside_) return false;
  const std::vector<RankEnd> all = ends();
  const RankEnd* root = root_cause(all);
  return root != nullptr && root->lost_peer;
}

// Of those that have ended, and of those that are stopped and cannot.
std::vector<RankEnd> Supervisor::ends() const {
  std::vector<RankEnd> ends;
  for (const Rank& rank : ranks_) {
    if (rank.end) {
      ends.push_back(*rank.end);
    } else if (is_stopped(rank) || rank.verdict) {
      RankEnd end;
      end.rank = rank.number;
      rank.note_verdict(end);
      end.stopped = rank.stopped;
      end.stopped_at_s = rank.stopped_at_s;
      ends.push_back(end);
    }
  }
  return ends;
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}, {others_ ? others_->fd() : -1, POLLIN, 0}};
  for (Rank& rank : ranks_) {
    for (OutputStream stream : {OutputStream::Out, OutputStream::Err})
      fds.push_back({rank.fd(stream), POLLIN, 0});
  }
  milliseconds wait = desk_ ? VerdictDesk::kLook : kLongestWait;
  if (deadline_) {
    const auto left = std::chrono::ceil<milliseconds>(*deadline_ - Clock::now());
    wait = std::clamp(left, milliseconds(0), wait);
  }
  const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(wait.count()));
  TANDEM_CHECK(ready >= 0 || errno == EINTR, "poll: {}", std::strerror(errno));
  for (size_t i = 0; ready > 0 && i < ranks_.size(); ++i) {
    if (fds[2 + 2 * i].revents != 0) read_output(ranks_[i], OutputStream::Out);
    if (fds[3 + 2 * i].revents != 0) read_output(ranks_[i], OutputStream::Err);
  }
  for (int signal : signals_.take()) on_signal(signal);
  reap();
  if (desk_) watch_places();
  if (others_ != nullptr && ready > 0 && fds[1].revents != 0) {
    const OtherNodes::News news = others_->take();
    if (news.interrupt != 0 && interrupted_ == 0) {
      const std::string who = news.rank >= 0 ? fmt::format("rank {}", news.rank) : "another node";
      interrupt(news.interrupt, -1,
                fmt::format("{} was interrupted; {} passed on", who, describe_signal(news.interrupt)));
    }
    if (news.interrupt != 0) regrouping_ = false;
    if (news.stop && !failing_) end_from_outside(news.is_final);
    if (news.regroup && phase_ == Phase::Running && interrupted_ == 0) regroup();
  }
}

// What is wrong with the config or the data is wrong for the ranks here too: each says so itself, and all are
// alike.
void Supervisor::end_from_outside(bool is_final) {
  stopped_from_outside_ = true;
  if (!is_final || phase_ == Phase::Stopping) return stop_others();
  if (phase_ != Phase::Running) return;
  phase_ = Phase::Settling;
  deadline_ = Clock::now() + setup_.agreement_grace;
}

int64_t Supervisor::read_output(Rank& rank, OutputStream stream) {
  char buffer[1 << 16];
  const ssize_t size = ::read(rank.fd(stream), buffer, sizeof(buffer));
  if (size > 0) {
    rank.output.receive(stream, {buffer, static_cast<size_t>(size)});
  } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {  // a pseudo terminal ends with EIO
    close_stream(rank, stream);
  }
  return std::max<ssize_t>(size, 0);
}

void Supervisor::close_stream(Rank& rank, OutputStream stream) {
  if (rank.fd(stream) < 0) return;
  ::close(rank.fd(stream));
  rank.fd(stream) = -1;
  rank.output.finish(stream);
}

// What the rank has written is there, and is read however long the terminal takes to show it. Only somebody
// outside the group may still write: for that the time to wait and the amount are bounded.
void Supervisor::drain(Rank& rank, OutputStream stream) {
  Clock::duration waited{};
  int64_t bytes = 0;
  while (rank.fd(stream) >= 0 && waited < kDrain && bytes < kMostDrained) {
    const auto start = Clock::now();
    pollfd ready{rank.fd(stream), POLLIN, 0};
    const bool has_output = ::poll(&ready, 1, 20) > 0;
    waited += Clock::now() - start;
    if (has_output) bytes += read_output(rank, stream);
  }
  close_stream(rank, stream);
}

// A rank that hinders the others has failed, as far as they are concerned. One that was stopped goes on when
// it is told to end, and all save their work; one that is stuck cannot. That is looked for also while ranks
// end because somebody wants them to: they would wait for it, and all of us for them.
void Supervisor::watch_places() {
  if (phase_ != Phase::Running && !(phase_ == Phase::Stopping && !failing_)) return;
  std::vector<RankWatch::Condition> conditions;
  for (const Rank& rank : ranks_) {
    conditions.push_back(rank.condition());
    conditions.back().stopped &= setup_.is_tandem;
  }
  const std::optional<Verdict> verdict = desk_->look(conditions);
  if (!verdict) return;
  for (Rank& rank : ranks_) {
    if (rank.number != verdict->rank) continue;
    rank.verdict = verdict;
    if (verdict->kind == "stuck") ::kill(-rank.child.pid, SIGKILL);
  }
  first_failure_ = Clock::now();
  tell_failure();
  stop_others();
}

// The kernel tells a parent of stops as of ends. Once we have made it go on to obey us, it counts as stopped
// still.
void Supervisor::watch_stops(Rank& rank) {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(rank.child.pid), &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
         info.si_pid != 0) {
    if (info.si_code == CLD_STOPPED && !rank.told) {
      rank.stopped = info.si_status;
      rank.stopped_at_s = std::chrono::duration<double>(Clock::now() - start_).count();
      rank.went_on.reset();
      terminal_.message(fmt::format(
          "rank {} was stopped ({}){}: kill -CONT {} to go on", rank.number, describe_signal(info.si_status),
          ranks_.size() > 1 || others_ != nullptr ? ", and the others wait for it" : "", rank.child.pid));
      if (others_ != nullptr) others_->tell_stopped(rank.number, rank.stopped);
    } else if (info.si_code == CLD_CONTINUED && !rank.told && !first_failure_) {
      rank.went_on = Clock::now();
      terminal_.message(fmt::format("rank {} goes on", rank.number));
      if (others_ != nullptr) others_->tell_stopped(rank.number, 0);
    }
    info = {};
  }
}

bool Supervisor::is_stopped(const Rank& rank) const {
  return rank.stopped != 0 &&
         (!rank.went_on || (first_failure_ && *rank.went_on + setup_.stopped_before > *first_failure_));
}

// The group is killed while its leader still waits to be reaped: until then its number cannot belong to
// anybody else.
void Supervisor::reap() {
  for (Rank& rank : ranks_) {
    if (rank.end) continue;
    watch_stops(rank);
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(rank.child.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
      continue;
    const auto now = Clock::now();
    ::kill(-rank.child.pid, SIGKILL);
    ::waitpid(rank.child.pid, nullptr, 0);
    RankEnd end;
    end.rank = rank.number;
    (info.si_code == CLD_EXITED ? end.exit_code : end.signal) = info.si_status;
    end.told = rank.told;
    end.killed = rank.killed;
    end.at_s = std::chrono::duration<double>(now - start_).count();
    rank.end = end;
  }
  bool settle_again = false;
  for (Rank& rank : ranks_) {
    if (!rank.end || rank.child.pid == 0) continue;
    rank.child.pid = 0;
    settle_ended(rank);
    if (rank.told || interrupted_ != 0 || !rank.end->failed()) continue;
    if (!first_failure_ && desk_ && rank.end->signal != 0 && is_own_fault(*rank.end))
      desk_->tell_dead(rank.number);
    if (!first_failure_) first_failure_ = Clock::now();
    settle_again = true;
  }
  for (const Rank& rank : ranks_) {
    if (rank.end && !rank.told && was_interrupted(*rank.end)) on_interrupted_rank(rank);
  }
  if (settle_again && (phase_ == Phase::Running || phase_ == Phase::Settling)) settle();
}

void Supervisor::settle_ended(Rank& rank) {
  for (OutputStream stream : {OutputStream::Out, OutputStream::Err}) drain(rank, stream);
  rank.end->lost_peer = rank.notes.has_lost_peer();
  rank.end->is_ours = rank.notes.has_final_code();
  rank.end->message = rank.end->failed() ? rank.notes.error_message() : "";
  rank.end->stopped = is_stopped(rank) ? rank.stopped : 0;
  rank.note_verdict(*rank.end);
  rank.end->stopped_at_s = rank.stopped_at_s;
  rank.end->shown = rank.output.show_of_last_lines();
  rank.end->last_lines = {rank.output.last_lines().begin(), rank.output.last_lines().end()};
  rank.output.log_line(fmt::format("--- rank {} ended with {}", rank.number, describe_exit(*rank.end)));
}

// A rank that was interrupted tells its peers, and any of them may end first: who was given the signal is
// what the ranks themselves have noted. That they miss each other then is no failure.
void Supervisor::on_interrupted_rank(const Rank& rank) {
  const bool only_missed = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& other) {
    return !other.end || !other.end->failed() || other.end->lost_peer;
  });
  if (interrupted_ != 0 || !only_missed) return;
  if (others_ != nullptr && others_->is_regrouping()) return regroup();
  int first = rank.number, signal = SIGTERM;
  std::optional<RankNotes::Interruption> earliest;
  for (const Rank& other : ranks_) {
    const std::optional<RankNotes::Interruption> note = other.notes.interruption();
    if (!note || (earliest && earliest->time <= note->time)) continue;
    earliest = note;
    first = other.number;
    signal = note->signal;
  }
  const bool is_elsewhere = !earliest && others_ != nullptr;
  if (earliest && others_ != nullptr) others_->tell_interrupted_rank(first);
  interrupt(SIGTERM, first,
            is_elsewhere ? "a rank was interrupted; SIGTERM passed on"
                         : fmt::format("rank {} was interrupted ({}); SIGTERM passed on", first,
                                       describe_signal(signal)));
}

// Nobody but those that are stopped can add anything once all others have ended.
void Supervisor::settle() {
  const std::vector<RankEnd> so_far = ends();
  const RankEnd* root = root_cause(so_far);
  const bool all_known = so_far.size() == ranks_.size() && root->stopped != 0;
  phase_ = Phase::Settling;
  deadline_ = *first_failure_ + (root->is_final()                        ? setup_.agreement_grace
                                 : is_own_fault(*root) || all_known      ? kSettleOwnFault
                                 : root->lost_peer || root->stopped != 0 ? kSettleLostPeer
                                                                         : kSettleSuspicion);
}

void Supervisor::tell_failure() {
  if (others_ == nullptr || failure_told_) return;
  failure_told_ = true;
  const std::vector<RankEnd> so_far = ends();
  const RankEnd* root = root_cause(so_far);
  if (root != nullptr && !(root->lost_peer && interrupted_ != 0)) others_->tell_failure(*root, so_far);
}

void Supervisor::send(int signal) {
  for (Rank& rank : ranks_) {
    if (rank.end) continue;
    rank.told = true;
    rank.killed = signal == SIGKILL;
    ::kill(-rank.child.pid, signal);
    ::kill(-rank.child.pid, SIGCONT);  // one that was stopped could not obey
  }
}

void Supervisor::stop_others() {
  failing_ = true;
  phase_ = Phase::Stopping;
  deadline_ = Clock::now() + setup_.failure_grace;
  send(SIGTERM);
}

void Supervisor::interrupt(int signal, int rank, const std::string& why) {
  interrupted_ = signal;
  interrupted_rank_ = rank;
  if (others_ != nullptr && !regrouping_) others_->tell_interrupt(signal, rank);
  if (phase_ == Phase::Stopping || phase_ == Phase::Killing) return;  // they know
  const auto running =
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.end; });
  if (running > 0)
    terminal_.message(fmt::format("{}; {} rank{} may take {} s to end (again to kill)", why, running,
                                  running == 1 ? "" : "s", setup_.grace.count() / 1000));
  phase_ = Phase::Stopping;
  deadline_ = Clock::now() + setup_.grace;
  send(signal);
}

void Supervisor::regroup() {
  regrouping_ = true;
  if (others_ != nullptr) others_->tell_regroup();
  interrupt(SIGTERM, -1, "more ranks are coming: SIGTERM passed on");
}

void Supervisor::kill_all() {
  phase_ = Phase::Killing;
  deadline_ = Clock::now() + kAfterKill;
  send(SIGKILL);
}

void Supervisor::on_signal(int signal) {
  if (signal == SIGWINCH) {
    for (Rank& rank : ranks_) {
      for (OutputStream stream : {OutputStream::Out, OutputStream::Err}) {
        if (rank.output.show(stream) == Show::AsItIs && rank.fd(stream) >= 0)
          copy_terminal_size(terminal_.fd(stream), rank.fd(stream));
      }
    }
  }
  if (!signals_.asks_to_stop(signal)) return;
  // Programs know what SIGTERM means.
  const int passed_on = signal == SIGHUP || (setup_.is_tandem && signal != SIGINT) ? SIGTERM : signal;
  if (std::exchange(regrouping_, false))  // the ranks know
    return others_ != nullptr ? others_->tell_interrupt(passed_on, -1) : void();
  if (interrupted_ != 0 && setup_.is_scheduled && signal == SIGTERM) return;
  if (interrupted_ != 0) return kill_all();
  interrupt(passed_on, -1, fmt::format("{} passed on", describe_signal(passed_on)));
}

void Supervisor::on_deadline() {
  switch (phase_) {
    case Phase::Running: break;
    case Phase::Settling:
      tell_failure();
      stop_others();
      break;
    case Phase::Stopping: kill_all(); break;
    case Phase::Killing:
      for (Rank& rank : ranks_) {
        if (rank.end) continue;
        terminal_.message(fmt::format("rank {} (pid {}) does not die of SIGKILL; leaving it behind",
                                      rank.number, rank.child.pid));
        RankEnd end;
        end.rank = rank.number;
        end.signal = SIGKILL;
        end.told = end.killed = true;
        rank.end = end;
        rank.child.pid = 0;
      }
      break;
  }
}

}  // namespace

AttemptResult supervise(const AttemptSetup& setup, SignalReader& signals, Terminal& terminal,
                        OtherNodes* others) {
  return Supervisor(setup, signals, terminal, others).run();
}

}  // namespace tandem
