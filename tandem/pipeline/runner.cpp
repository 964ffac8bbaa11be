#include "tandem/pipeline/runner.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <queue>

#include "tandem/base/descriptor.h"
#include "tandem/base/file.h"
#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/config/values.h"
#include "tandem/launch/signals.h"
#include "tandem/pipeline/cluster_job.h"
#include "tandem/pipeline/lock.h"
#include "tandem/pipeline/log_tail.h"
#include "tandem/pipeline/process.h"
#include "tandem/pipeline/programs.h"
#include "tandem/pipeline/record.h"
#include "tandem/pipeline/remote_store.h"

namespace tandem::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr double kGraceAfterTimeoutS = 10;
constexpr double kGraceAfterSignalS = 120;  // a checkpoint may be large
constexpr int kInterruptedCode = static_cast<int>(ExitCode::Interrupted);
constexpr int kMostTaken =
    100;  // times that a cluster may end a step's job: a step that never gets anywhere ends

enum class State { Waiting, Running, Made, Kept, Skipped, Failed, Blocked, Stopped };

struct Running {
  size_t step = 0;
  pid_t pid = 0;
  double start_s = 0;
  double term_s = 0, kill_s = 0;  // when it is asked to end, and when it is ended; 0: never
  bool timed_out = false;
};

class Runner {
 public:
  Runner(const Plan& plan, const RunOptions& options)
      : plan_(plan),
        options_(options),
        lock_(plan.store()),
        digests_(plan.digests),
        processes_(std::min(static_cast<size_t>(options.jobs), plan.work.size())),
        count_(plan.work.size()),
        states_(count_, State::Waiting),
        missing_(count_),
        tries_(count_),
        taken_(count_),
        followers_(count_),
        metrics_(count_),
        far_(count_) {
    digests_.save();  // there is a store now
    if (!plan.graph.spec.remote.empty()) remote_.emplace(plan.graph.spec.remote);
  }

  ExitCode run() {
    std::signal(SIGCHLD, SIG_DFL);  // where it is ignored, nobody learns how a child ended
    const double start_s = steady_s();
    for (size_t step = 0; step < count_; ++step) {
      missing_[step] = steps()[step].needs.size();
      for (int other : steps()[step].needs) followers_[static_cast<size_t>(other)].push_back(step);
      if (missing_[step] == 0) ready_.push(step);
    }
    for (;;) {
      while (!ready_.empty() && may_begin() && static_cast<int>(running_.size()) < options_.jobs) {
        const size_t step = ready_.top();
        ready_.pop();
        begin(step);
      }
      if (running_.empty()) break;
      wait();
    }
    return report(steady_s() - start_s);
  }

 private:
  const std::vector<Step>& steps() const { return plan_.graph.steps; }
  const std::string& name(size_t step) const { return steps()[step].name; }
  std::string log_name(size_t step) const { return (plan_.home(step) / kLog).lexically_normal().string(); }
  bool may_begin() const { return !interrupted_ && (failed_.empty() || options_.keep_going); }

  template <typename... Args>
  void tell(size_t step, fmt::format_string<Args...> format, Args&&... args) const {
    std::fprintf(stderr, "%s: %s\n", name(step).c_str(),
                 fmt::format(format, std::forward<Args>(args)...).c_str());
  }

  // All that it needs is there.
  void begin(size_t step) {
    try {
      if (!condition_holds(step)) return settle(step, State::Skipped);
      if (std::optional<Json> record = read_record(plan_, step)) {
        if (remote_) remote_->keep(plan_, step);
        return keep(step, *record);
      }
      if (remote_ && (far_[step] = remote_->record(plan_, step))) return keep_far(step);
      start(step);
    } catch (const std::exception& error) {
      fail(step, error.what());
    }
  }

  bool condition_holds(size_t step) {
    const Condition& when = steps()[step].spec->when;
    std::string found;
    const auto value = [&](const Operand& operand) {
      if (operand.step.empty()) return operand.number;
      const size_t other = static_cast<size_t>(plan_.graph.matching(steps()[step], operand.step).front());
      const auto metric = metrics_[other].find(operand.metric);
      if (metric == metrics_[other].end()) {
        std::string known;
        for (const auto& [key, number] : metrics_[other].items()) known += (known.empty() ? "" : ", ") + key;
        throw ConfigError("when: {} has no metric {}; {}", name(other), in_quotes(operand.metric),
                          known.empty() ? "its output is no JSON object and no run" : "it has " + known);
      }
      found += fmt::format("{}{}.{} is {}", found.empty() ? "" : ", ", operand.step, operand.metric,
                           metric->dump());
      return metric->get<double>();
    };
    if (when.holds(value)) return true;
    tell(step, "skipped: {} does not hold ({})", when.text, found);
    return false;
  }

  void keep(size_t step, const Json& record) {
    const Json output = record.value("output", Json::object());
    if (!plan_.work[step].output.empty()) {
      const Extent now = extent_of(plan_.folder() / plan_.work[step].output);
      if (now != Extent{output.value("files", int64_t{0}), output.value("bytes", int64_t{0})})
        tell(step, "note: its output was changed since the step made it; to make it again, delete {}",
             plan_.work[step].home.string());
    }
    metrics_[step] = record.value("metrics", Json::object());
    link_output(plan_, step);
    settle(step, State::Kept);
  }

  // Made by another, elsewhere: it comes when somebody needs it, or at once where nobody will.
  void keep_far(size_t step) {
    metrics_[step] = far_[step]->value("metrics", Json::object());
    if (followers_[step].empty()) fetch(step);
    settle(step, State::Kept);
  }

  void fetch(size_t step) {
    if (!far_[step]) return;
    tell(step, "fetched from {}", plan_.graph.spec.remote);
    remote_->fetch(plan_, step, *far_[step]);
    far_[step].reset();
    link_output(plan_, step);
  }

  void fetch_needs(size_t step) {
    for (const int other : steps()[step].needs) fetch(static_cast<size_t>(other));
  }

  // Or the record would tell of other bytes than those that were read.
  void require_same_inputs(size_t step) {
    const std::vector<Input>& inputs = steps()[step].inputs;
    for (size_t at = 0; at < inputs.size(); ++at) {
      if (inputs[at].step >= 0 ||
          digests_.of(plan_.folder() / inputs[at].path) == plan_.work[step].digests[at])
        continue;
      throw DataError("{} has changed since the pipeline was begun; run it again",
                      in_quotes(inputs[at].path));
    }
  }

  void start(size_t step) {
    require_same_inputs(step);
    fetch_needs(step);
    fs::create_directories(plan_.home(step));
    steps()[step].spec->where == Where::Local ? start_here(step) : start_job(step);
  }

  void start_here(size_t step) {
    const Work& work = plan_.work[step];
    fs::remove(plan_.home(step) / kRecord);
    const fs::path output = work.output.empty() ? fs::path() : plan_.folder() / work.output;
    const bool goes_on = work.resumes && is_there(output);
    // An output that appears whole may be there without its record, whose writer was killed.
    if (!work.output.empty() && (!work.resumes || work.appears_whole)) fs::remove_all(output);
    const Descriptor log = open_log(step);
    const Descriptor captured(
        work.captures ? ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1);
    if (work.captures && captured.get() < 0)
      throw IoError("{}: cannot be written: {}", output.string(), std::strerror(errno));
    begin_attempt(step, log.get());
    ProcessSetup setup{work.command,   work.environment,
                       plan_.folder(), work.captures ? captured.get() : log.get(),
                       log.get(),      lock_.descriptor()};
    if (!steps()[step].spec->shell) setup.command.front() = program_of(setup.command.front());
    start_process(step, setup, goes_on ? "goes on" : "started");
  }

  // On a cluster. A job that a runner before this one has left there is waited for.
  void start_job(size_t step) {
    const fs::path file = fs::absolute(plan_.home(step) / kJobNote).lexically_normal();
    const std::string place(name_of(steps()[step].spec->where));
    const bool is_there_already = has_job(step, file);
    const Descriptor log = open_log(step);
    if (!is_there_already) {
      fs::remove(plan_.home(step) / kRecord);
      const Attempt attempt = begin_attempt(step, log.get());
      const JobNote note = make_note(plan_, step, attempt.number);
      if (note.where == Where::Kubernetes && ::geteuid() == 0) give_away(step);
      write_note(file, note);
    }
    const ProcessSetup setup{{own_program(), "pipeline", "attend", file.string()},
                             {},
                             plan_.folder(),
                             log.get(),
                             log.get(),
                             lock_.descriptor()};
    start_process(step, setup, fmt::format("{} on {}", is_there_already ? "goes on" : "started", place));
  }

  bool has_job(size_t step, const fs::path& file) const {
    const std::optional<JobNote> note = read_note(file);
    if (!note || note->where != steps()[step].spec->where) return false;
    const Fate fate = fate_of(file, *note);
    const std::string& output = plan_.work[step].output;
    if (fate == Fate::Ended && !output.empty() && !is_there(plan_.folder() / output)) return false;
    return fate != Fate::Gone;
  }

  // Root's pods are somebody else, who has to write there.
  void give_away(size_t step) const {
    const auto user = static_cast<uid_t>(user_of(steps()[step].spec->cluster));
    for (const fs::path& path : {plan_.home(step), plan_.home(step) / kLog}) {
      if (::chown(path.c_str(), user, user) != 0)
        throw IoError("{}: cannot be given to user {}: {}", path.string(), user, std::strerror(errno));
    }
  }

  Descriptor open_log(size_t step) const {
    const int log =
        ::open((plan_.home(step) / kLog).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log < 0) throw IoError("{}: cannot be written: {}", log_name(step), std::strerror(errno));
    return Descriptor(log);
  }

  Attempt begin_attempt(size_t step, int log) const {
    Attempt attempt = read_attempt(plan_, step);
    attempt = {attempt.number + 1, utc_time(), ::getpid(), ""};
    write_attempt(plan_, step, attempt);
    const std::string header = log_header(attempt.number, attempt.start, plan_.work[step].command);
    if (::write(log, header.data(), header.size()) < 0)
      throw IoError("{}: cannot be written: {}", log_name(step), std::strerror(errno));
    return attempt;
  }

  void start_process(size_t step, const ProcessSetup& setup, const std::string& how) {
    ++tries_[step];
    states_[step] = State::Running;
    Running running{step, processes_.start(setup, signals_.outer_mask()), steady_s()};
    if (steps()[step].spec->timeout_s > 0) running.term_s = running.start_s + steps()[step].spec->timeout_s;
    running_.push_back(running);
    tell(step, "{} ({} of {})", how, ++begun_, count_);
  }

  void wait() {
    double next_s = steady_s() + 3600;
    for (const Running& each : running_) {
      for (double at : {each.term_s, each.kill_s}) next_s = at > 0 ? std::min(next_s, at) : next_s;
    }
    pollfd poll_for{signals_.fd(), POLLIN, 0};
    const double wait_s = std::max(0.0, next_s - steady_s());
    ::poll(&poll_for, 1, static_cast<int>(wait_s * 1000) + 1);
    for (int signal : signals_.take()) {
      if (signals_.asks_to_stop(signal)) interrupt();
    }
    for (Running& each : running_) enforce_times(each);
    for (size_t at = 0; at < running_.size();) {
      const Running each = running_[at];
      const std::optional<int> code = processes_.take_ended(each.pid);
      if (!code) {
        ++at;
        continue;
      }
      running_.erase(running_.begin() + static_cast<ptrdiff_t>(at));
      end(each, *code);
    }
  }

  // Once: they may save. Twice: now.
  void interrupt() {
    std::fprintf(stderr, interrupted_ ? "ending the steps now\n" : "interrupted: asking %zu running to end\n",
                 running_.size());
    for (Running& each : running_) {
      signal_group(each.pid, interrupted_ ? SIGKILL : SIGTERM);
      each.term_s = 0;
      each.kill_s = steady_s() + kGraceAfterSignalS;
    }
    interrupted_ = true;
  }

  void enforce_times(Running& each) {
    const double now_s = steady_s();
    if (each.term_s > 0 && now_s >= each.term_s) {
      each.timed_out = true;
      each.term_s = 0;
      each.kill_s = now_s + kGraceAfterTimeoutS;
      signal_group(each.pid, SIGTERM);
    }
    if (each.kill_s > 0 && now_s >= each.kill_s) {
      each.kill_s = 0;
      signal_group(each.pid, SIGKILL);
    }
  }

  void end(const Running& run, int code) {
    const size_t step = run.step;
    const double seconds = steady_s() - run.start_s;
    const std::string& output = plan_.work[step].output;
    std::string failure;
    if (run.timed_out) {
      failure =
          fmt::format("took longer than its timeout of {}", format_duration(steps()[step].spec->timeout_s));
    } else if (code != 0) {
      failure = describe_exit(code);
    } else if (!output.empty() && !is_there(plan_.folder() / output)) {
      failure = fmt::format("ended well, but did not write {{out}}, which was {}", output);
    }
    const bool was_taken = code == kInterruptedCode && !run.timed_out && !interrupted_ &&
                           steps()[step].spec->where != Where::Local && ++taken_[step] <= kMostTaken;
    try {
      if (failure.empty()) return finish(step, seconds);
      // An attendant that was killed has left its job there; else the job is over.
      if (code != 128 + SIGKILL) fs::remove(plan_.home(step) / kJobNote);
    } catch (const std::exception& error) {
      failure = error.what();
    }
    if (interrupted_) {
      states_[step] = State::Stopped;
      tell(step, "stopped after {}", format_duration(seconds));
      return;
    }
    if (was_taken) {
      --tries_[step];
      tell(step, "the cluster took its node back after {}; it goes on", format_duration(seconds));
      return begin(step);
    }
    if (tries_[step] <= steps()[step].spec->retries) {
      tell(step, "{} after {}; tried again, {} of {}", failure, format_duration(seconds), tries_[step],
           steps()[step].spec->retries);
      return begin(step);
    }
    fail(step, fmt::format("{} after {}", failure, format_duration(seconds)));
  }

  void finish(size_t step, double seconds) {
    require_same_inputs(step);
    write_record(plan_, step, read_attempt(plan_, step), seconds, options_.version);
    fs::remove(plan_.home(step) / kJobNote);
    if (remote_) remote_->keep(plan_, step);
    if (!plan_.work[step].output.empty())
      metrics_[step] = metrics_of(plan_.folder() / plan_.work[step].output);
    link_output(plan_, step);
    tell(step, "done in {}", format_duration(seconds));
    settle(step, State::Made);
  }

  void fail(size_t step, const std::string& failure) {
    tell(step, "failed: {}", failure);
    const std::string tail = log_tail(plan_.home(step) / kLog);
    if (!tail.empty()) std::fprintf(stderr, "%s", tail.c_str());
    if (failed_.empty()) first_failure_ = failure;
    failed_.push_back(step);
    if (is_there(plan_.home(step))) {
      Attempt attempt = read_attempt(plan_, step);
      attempt.failure = failure;
      write_attempt(plan_, step, attempt);
    }
    settle(step, State::Failed);
  }

  // The step is over; so are those that now cannot run, and those that can are ready.
  void settle(size_t first, State state) {
    states_[first] = state;
    if (state == State::Skipped) unlink_output(plan_, first);
    std::vector<size_t> settled = {first};
    while (!settled.empty()) {
      const size_t step = settled.back();
      settled.pop_back();
      for (size_t follower : followers_[step]) {
        if (--missing_[follower] > 0) continue;
        states_[follower] = verdict_of(follower);
        if (states_[follower] == State::Waiting) {
          ready_.push(follower);
          continue;
        }
        if (states_[follower] == State::Skipped) unlink_output(plan_, follower);
        settled.push_back(follower);
      }
    }
  }

  // Of a step whose needs are all over.
  State verdict_of(size_t step) const {
    for (State state : {State::Failed, State::Skipped}) {
      for (int other : steps()[step].needs) {
        const State found = states_[static_cast<size_t>(other)];
        const bool same = found == state || (state == State::Failed && found == State::Blocked);
        if (!same) continue;
        tell(step, "{}: {} {}", state == State::Failed ? "not run" : "skipped",
             name(static_cast<size_t>(other)),
             state == State::Skipped   ? "is"
             : found == State::Blocked ? "was not"
                                       : "failed");
        return state == State::Failed ? State::Blocked : State::Skipped;
      }
    }
    return State::Waiting;
  }

  ExitCode report(double seconds) const {
    const auto count = [&](State state) { return std::count(states_.begin(), states_.end(), state); };
    std::string text =
        fmt::format("{}: {} done", count_of(static_cast<int64_t>(count_), "step"), count(State::Made));
    if (count(State::Kept) > 0) text += fmt::format(", {} as before", count(State::Kept));
    if (count(State::Skipped) > 0) text += fmt::format(", {} skipped", count(State::Skipped));
    if (count(State::Failed) > 0) text += fmt::format(", {} failed", count(State::Failed));
    const auto rest = count(State::Waiting) + count(State::Blocked) + count(State::Stopped);
    if (rest > 0) text += fmt::format(", {} still to do", rest);
    std::fprintf(stderr, "%s, in %s\n", text.c_str(), format_duration(seconds).c_str());
    if (interrupted_) {
      std::fprintf(stderr, "run the same command again to go on\n");
      return ExitCode::Interrupted;
    }
    if (failed_.empty()) return ExitCode::Done;
    const size_t step = failed_.front();
    // One that failed before it was begun has none.
    const std::string log =
        is_there(plan_.home(step) / kLog) ? fmt::format("; its log is {}", log_name(step)) : "";
    throw Error(ExitCode::Failed, fmt::format("{}: {} failed: {}{}", plan_.graph.spec.file.string(),
                                              name(step), first_failure_, log));
  }

  const Plan& plan_;
  const RunOptions& options_;
  StoreLock lock_;
  Digests digests_;
  SignalReader signals_;
  Processes processes_;
  size_t count_;
  std::vector<State> states_;
  std::vector<size_t> missing_;
  std::vector<int64_t> tries_;
  std::vector<int> taken_;
  std::vector<std::vector<size_t>> followers_;
  std::vector<Json> metrics_;
  std::optional<RemoteStore> remote_;
  std::vector<std::optional<Json>> far_;  // records of steps that are in the remote store alone
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready_;
  std::vector<Running> running_;
  std::vector<size_t> failed_;
  std::string first_failure_;
  size_t begun_ = 0;
  bool interrupted_ = false;
};

}  // namespace

ExitCode run_pipeline(const Plan& plan, const RunOptions& options) {
  check_programs(plan);
  check_links(plan);
  return Runner(plan, options).run();
}

}  // namespace tandem::pipeline
