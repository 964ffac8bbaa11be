#include "tandem/pipeline/sweep.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <numeric>

#include "tandem/base/descriptor.h"
#include "tandem/base/file.h"
#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/launch/signals.h"
#include "tandem/pipeline/curve.h"
#include "tandem/pipeline/lock.h"
#include "tandem/pipeline/log_tail.h"
#include "tandem/pipeline/process.h"

namespace tandem::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIdentity = "sweep.txt";
constexpr int kLookEveryMs = 50;  // at how far a trial is
constexpr double kGraceS = 120;   // for a trial to save

std::string label(const Sweep& sweep, size_t trial) {
  std::string text;
  for (const std::string& set : sweep.trials[trial].sets) text += (text.empty() ? "" : " ") + set;
  return fmt::format("trial {} ({})", trial, text);
}

// A folder belongs to one sweep: other trials under the same names would be taken for this one's.
void check_identity(const Sweep& sweep) {
  const fs::path file = sweep.folder / kIdentity;
  if (!is_there(file) || read_text(file) == sweep.identity) return;
  throw ConfigError(
      "{}: has another sweep in it ({}), of another config, grid or other flags; name another --dir, or "
      "delete it",
      sweep.folder.string(), kIdentity);
}

class Sweeper {
 public:
  explicit Sweeper(const Sweep& sweep)
      : sweep_(sweep),
        lock_(sweep.folder),
        processes_(std::min(static_cast<size_t>(sweep.jobs), sweep.trials.size())) {
    result_.trials.resize(sweep.trials.size());
    check_identity(sweep);
    if (!is_there(sweep.folder / kIdentity)) write_atomically(sweep.folder / kIdentity, sweep.identity);
  }

  SweepResult run() {
    const std::vector<Rung> rungs = halving_rungs(sweep_.trials.size(), sweep_.factor);
    std::vector<size_t> alive(sweep_.trials.size());
    std::iota(alive.begin(), alive.end(), size_t{0});
    for (size_t at = 0; at < rungs.size() && !alive.empty(); ++at) {
      alive.resize(std::min(alive.size(), rungs[at].trials));
      const bool last = at + 1 == rungs.size();
      std::fprintf(stderr, "%s to %.3g%% of the steps\n",
                   count_of(static_cast<int64_t>(alive.size()), "trial").c_str(), 100 * rungs[at].fraction);
      run_to(alive, rungs[at].fraction);
      std::erase_if(alive, [&](size_t trial) { return result_.trials[trial].state == TrialState::Failed; });
      compare(alive, rungs[at].fraction);
      const size_t kept = last ? alive.size() : std::min(alive.size(), rungs[at + 1].trials);
      for (size_t rank = kept; rank < alive.size(); ++rank) {
        result_.trials[alive[rank]].state = TrialState::Stopped;
        std::fprintf(stderr, "%s: stopped at %s\n", label(sweep_, alive[rank]).c_str(),
                     told(alive[rank]).c_str());
      }
    }
    if (alive.empty())
      throw Error(ExitCode::Failed, fmt::format("{}: every trial failed; trial 0: {}", sweep_.folder.string(),
                                                result_.trials[0].note));
    rank();
    return result_;
  }

 private:
  struct Running {
    size_t trial;
    pid_t pid;
    int64_t target;
    double kill_s = 0;  // set: it was asked to stop
  };

  int64_t target_of(size_t trial, double fraction) const {
    const int64_t steps = sweep_.trials[trial].steps;
    return std::clamp<int64_t>(std::llround(fraction * static_cast<double>(steps)), 1, steps);
  }

  // With all of its steps, or with as many as train.patience let it take.
  bool has_ended(size_t trial) const { return is_there(sweep_.run_of(trial) / "summary.json"); }

  bool is_there_yet(size_t trial, int64_t target) const {
    if (has_ended(trial)) return true;
    return target != sweep_.trials[trial].steps && last_step(sweep_.run_of(trial)) >= target;
  }

  void run_to(const std::vector<size_t>& trials, double fraction) {
    std::deque<size_t> waiting;
    for (size_t trial : trials) {
      if (!is_there_yet(trial, target_of(trial, fraction))) waiting.push_back(trial);
    }
    while (!waiting.empty() || !running_.empty()) {
      while (!waiting.empty() && !interrupted_ && static_cast<int>(running_.size()) < sweep_.jobs) {
        start(waiting.front(), target_of(waiting.front(), fraction));
        waiting.pop_front();
      }
      if (running_.empty()) break;
      wait();
    }
    if (interrupted_)
      throw Interruption("{}: interrupted; run the same command again to go on", sweep_.folder.string());
  }

  void start(size_t trial, int64_t target) {
    const fs::path log = sweep_.run_of(trial).string() + ".log";
    const Descriptor file(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file.get() < 0) throw IoError("{}: cannot be written", log.string());
    std::vector<std::string> command = {own_program()};
    command.insert(command.end(), sweep_.command.begin(), sweep_.command.end());
    for (const std::string& set : sweep_.trials[trial].sets) command.insert(command.end(), {"--set", set});
    command.insert(command.end(), {"--run-dir", sweep_.run_of(trial).string()});
    const ProcessSetup setup{command, {}, ".", file.get(), file.get(), lock_.descriptor()};
    running_.push_back({trial, processes_.start(setup, signals_.outer_mask()), target});
    std::fprintf(stderr, "%s: to step %ld of %ld\n", label(sweep_, trial).c_str(), static_cast<long>(target),
                 static_cast<long>(sweep_.trials[trial].steps));
  }

  void ask_to_stop(Running& each) {
    each.kill_s = steady_s() + kGraceS;
    signal_group(each.pid, SIGTERM);
  }

  void wait() {
    pollfd poll_for{signals_.fd(), POLLIN, 0};
    ::poll(&poll_for, 1, kLookEveryMs);
    for (int signal : signals_.take()) {
      if (!signals_.asks_to_stop(signal)) continue;
      for (Running& each : running_) {
        ask_to_stop(each);
        if (interrupted_) signal_group(each.pid, SIGKILL);
      }
      interrupted_ = true;
    }
    for (Running& each : running_) {
      const bool whole = each.target == sweep_.trials[each.trial].steps;  // ends by itself
      if (!whole && each.kill_s == 0 && last_step(sweep_.run_of(each.trial)) >= each.target)
        ask_to_stop(each);
      if (each.kill_s > 0 && steady_s() > each.kill_s) signal_group(each.pid, SIGKILL);
    }
    for (size_t at = 0; at < running_.size();) {
      const Running each = running_[at];
      const std::optional<int> code = processes_.take_ended(each.pid);
      if (!code) {
        ++at;
        continue;
      }
      running_.erase(running_.begin() + static_cast<ptrdiff_t>(at));
      if (!interrupted_) end(each, *code);
    }
  }

  // Done, or stopped with a checkpoint. One that ended otherwise before its rung is out.
  void end(const Running& each, int code) {
    if (code == 0 || is_there_yet(each.trial, each.target)) return;
    TrialResult& result = result_.trials[each.trial];
    result.state = TrialState::Failed;
    const std::string tail = log_tail(sweep_.run_of(each.trial).string() + ".log");
    const size_t end = tail.find_last_not_of('\n');
    const size_t begin = end == std::string::npos ? 0 : tail.find_last_of('\n', end) + 1;
    result.note = fmt::format("{}: {}", describe_exit(code),
                              end == std::string::npos ? "" : tail.substr(begin + 4, end - begin - 3));
    result.steps = last_step(sweep_.run_of(each.trial));
    std::fprintf(stderr, "%s: failed: %s\n", label(sweep_, each.trial).c_str(), result.note.c_str());
  }

  // Sorts the trials, the best first.
  void compare(std::vector<size_t>& alive, double fraction) {
    std::vector<Curve> curves;
    result_.by_eval = !alive.empty();
    for (size_t trial : alive) {
      curves.push_back(read_curve(sweep_.run_of(trial)));
      result_.by_eval = result_.by_eval && has_eval_at(curves.back(), target_of(trial, fraction));
    }
    for (size_t at = 0; at < alive.size(); ++at) {
      TrialResult& result = result_.trials[alive[at]];
      result.part = fraction;
      result.steps = target_of(alive[at], fraction);
      if (has_ended(alive[at]) && curves[at].last_step() < result.steps) {
        result.steps = curves[at].last_step();
        result.note = "ended by train.patience";
      }
      result.loss = score_at(curves[at], result.steps, result_.by_eval);
    }
    std::stable_sort(alive.begin(), alive.end(),
                     [&](size_t a, size_t b) { return result_.trials[a].loss < result_.trials[b].loss; });
  }

  std::string told(size_t trial) const {
    return fmt::format("step {} with a loss of {}", result_.trials[trial].steps,
                       format_loss(result_.trials[trial].loss));
  }

  void rank() {
    result_.ranking.resize(result_.trials.size());
    std::iota(result_.ranking.begin(), result_.ranking.end(), size_t{0});
    const auto place = [&](size_t trial) {
      const TrialResult& result = result_.trials[trial];
      return std::tuple(result.state == TrialState::Failed, -result.part, result.loss);
    };
    std::stable_sort(result_.ranking.begin(), result_.ranking.end(),
                     [&](size_t a, size_t b) { return place(a) < place(b); });
  }

  const Sweep& sweep_;
  StoreLock lock_;
  SignalReader signals_;
  Processes processes_;
  SweepResult result_;
  std::vector<Running> running_;
  bool interrupted_ = false;
};

}  // namespace

fs::path Sweep::run_of(size_t trial) const { return folder / fmt::format("trial-{:03}", trial); }

SweepResult run_sweep(const Sweep& sweep) {
  check_identity(sweep);  // before anything is touched
  return Sweeper(sweep).run();
}

}  // namespace tandem::pipeline
