#include "tandem/chaos/trial.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/chaos/process.h"

namespace tandem::chaos {
namespace {

using std::chrono::milliseconds;

constexpr int kInterrupted = static_cast<int>(ExitCode::Interrupted);
constexpr int kMostStarts = 10;
constexpr int kMaxRestarts = 5;  // of the launcher, in one start

milliseconds in_ms(double seconds) { return milliseconds(static_cast<int64_t>(seconds * 1e3)); }

// Past it, something hangs.
milliseconds limit_of(double undisturbed_s) { return in_ms(120 + 20 * undisturbed_s); }

constexpr std::string_view kDiskFaults[] = {"eio", "enospc", "full", "dead", "short", "lost"};
constexpr std::string_view kNetFaults[] = {"cut", "slow", "stall"};

std::filesystem::path calls_of(const std::filesystem::path& directory, int rank) {
  return std::filesystem::absolute(directory) / fmt::format("calls.{}", rank);
}

// Calls of ranks for files of the run are counted and listed.
Process::Variables counting(const Setup& setup, const std::filesystem::path& directory) {
  if (setup.library.empty()) return {};
  const std::filesystem::path whole = std::filesystem::absolute(directory);
  return {{"LD_PRELOAD", std::filesystem::absolute(setup.library).string()},
          {"TANDEM_FAULT_DIR", (whole / "run").string()},
          {"TANDEM_FAULT_LOG", (whole / "calls").string()}};
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> train_words(const Setup& setup, const std::filesystem::path& directory,
                                     int max_restarts = kMaxRestarts) {
  std::vector<std::string> words = {setup.program,
                                    "launch",
                                    "--nproc-per-node",
                                    std::to_string(setup.num_ranks),
                                    "--max-restarts",
                                    std::to_string(max_restarts),
                                    "--log-dir",
                                    (directory / "logs").string(),
                                    "train"};
  words.insert(words.end(), setup.config.begin(), setup.config.end());
  words.insert(words.end(), {"--run-dir", (directory / "run").string()});
  return words;
}

std::string last_line(const std::filesystem::path& log) {
  std::ifstream file(log);
  std::string line, last;
  while (std::getline(file, line))
    if (!line.empty()) last = line;
  return last;
}

// The exit code of a command of this program, whose output goes to `log`.
int run(const Setup& setup, const std::vector<std::string>& words, const std::filesystem::path& log) {
  std::vector<std::string> all = {setup.program};
  all.insert(all.end(), words.begin(), words.end());
  Process process(all, log);
  return process.wait(std::chrono::minutes(30)).value_or(-1);
}

// The newest checkpoint's largest file; empty where there is no older one to go back to.
std::filesystem::path newest_part(const std::filesystem::path& checkpoints) {
  std::filesystem::path newest, largest;
  int64_t count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-")) continue;
    ++count;
    if (newest.empty() || name > newest.filename().string()) newest = entry.path();
  }
  if (count < 2) return {};
  uintmax_t most = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(newest, error)) {
    if (!entry.is_regular_file() || entry.file_size() <= most) continue;
    most = entry.file_size();
    largest = entry.path();
  }
  return largest;
}

// "bit 3 of byte 1234 of step-00000020/rank-0.bin", or that there was nothing to turn.
std::string flip_bit(const std::filesystem::path& checkpoints, uint64_t where) {
  const std::filesystem::path path = newest_part(checkpoints);
  if (path.empty()) return "before there were two checkpoints, of which one may be damaged";
  const auto byte = static_cast<std::streamoff>((where >> 3) % std::filesystem::file_size(path));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(byte);
  const auto value = static_cast<char>(file.get() ^ (1 << (where & 7)));
  file.seekp(byte);
  file.put(value);
  return fmt::format("and turned bit {} of byte {} of {}", where & 7, byte,
                     std::filesystem::relative(path, checkpoints).string());
}

class Trial {
 public:
  Trial(const Setup& setup, const Fault& fault, std::filesystem::path directory, double undisturbed_s)
      : setup_(setup), fault_(fault), directory_(std::move(directory)), undisturbed_s_(undisturbed_s) {}

  Outcome run_to_the_end() {
    const double start = steady_s();
    outcome_.fault = fault_;
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    outcome_.wrong = train();
    if (outcome_.wrong.empty()) outcome_.wrong = compare();
    outcome_.survived = outcome_.wrong.empty();
    outcome_.seconds = steady_s() - start;
    if (outcome_.survived) std::filesystem::remove_all(directory_);
    return outcome_;
  }

 private:
  std::filesystem::path log() const { return directory_ / "output.log"; }

  // What went wrong; empty where the run has come to its end.
  std::string train() {
    for (int starts = 0; starts < kMostStarts; ++starts) {
      const bool first = starts == 0, on_disk = first && fault_.kind == Kind::Disk;
      Process process(train_words(setup_, directory_, on_disk ? 0 : kMaxRestarts), log(),
                      first ? variables() : Process::Variables());
      if (first && !on_disk && fault_.kind != Kind::Net) hurt(process);
      const std::optional<int> code = process.wait(limit_of(undisturbed_s_));
      if (!code) return fmt::format("hangs: no end after {} s", limit_of(undisturbed_s_).count() / 1000);
      if (on_disk) tell_disk();
      if (first && fault_.kind == Kind::Net) tell_net();
      if (*code == 0) return "";
      if (*code != kInterrupted && !killed_) return fmt::format("exit code {}: {}", *code, last_line(log()));
      killed_ = false;
    }
    return fmt::format("no end after {} starts", kMostStarts);
  }

  std::string_view disk_fault() const { return kDiskFaults[fault_.where % std::size(kDiskFaults)]; }
  std::string_view net_fault() const { return kNetFaults[fault_.where % std::size(kNetFaults)]; }

  // One of the calls that the undisturbed run's rank made.
  size_t faulty_call() const {
    const size_t calls = lines_of(calls_of(setup_.directory / "undisturbed", fault_.rank)).size();
    return 1 + static_cast<size_t>(fault_.at * static_cast<double>(calls));
  }

  Process::Variables variables() const {
    if (fault_.kind != Kind::Disk && fault_.kind != Kind::Net) return {};
    Process::Variables all = counting(setup_, directory_);
    all.emplace_back("TANDEM_FAULT_RANK", std::to_string(fault_.rank));
    if (fault_.kind == Kind::Disk) {
      all.emplace_back("TANDEM_FAULT_AT", std::to_string(faulty_call()));
      all.emplace_back("TANDEM_FAULT_KIND", disk_fault());
    } else {
      all.emplace_back("TANDEM_TRANSPORT", "tcp");
      all.emplace_back("TANDEM_FAULT_NET", net_fault());
      all.emplace_back("TANDEM_FAULT_NET_MS", std::to_string(in_ms(fault_.at * undisturbed_s_).count()));
    }
    return all;
  }

  // Whatever the run says to it: when the disk is well again, it goes on.
  void tell_disk() {
    killed_ = true;
    const std::vector<std::string> calls = lines_of(calls_of(directory_, fault_.rank));
    const size_t at = faulty_call();
    if (at > calls.size()) {
      outcome_.what = fmt::format("rank {} made no call {} for the run's files", fault_.rank, at);
      return;
    }
    std::string call = calls[at - 1];
    const std::string run = (std::filesystem::absolute(directory_) / "run").string();
    for (size_t found; (found = call.find(run)) != std::string::npos;) call.replace(found, run.size(), "run");
    outcome_.what = fmt::format("{} at rank {}'s call {}", disk_fault(), fault_.rank, call);
  }

  void tell_net() {
    const double after = fault_.at * undisturbed_s_;
    const bool happened = std::filesystem::exists(calls_of(directory_, fault_.rank).string() + ".net");
    const std::string_view kind = net_fault();
    const char* const what = kind == "cut"    ? "cut a connection of"
                             : kind == "slow" ? "slowed down what is sent by"
                                              : "held up for 20 s what is sent by";
    outcome_.what = happened ? fmt::format("{} rank {} after {:.2f} s", what, fault_.rank, after)
                             : fmt::format("rank {} sent nothing after {:.2f} s", fault_.rank, after);
  }

  void hurt(Process& process) {
    const double after = fault_.at * undisturbed_s_;
    if (process.wait(in_ms(after))) {
      outcome_.what = fmt::format("had ended before {:.2f} s", after);
      return;
    }
    if (fault_.kind == Kind::Term) {
      process.signal(SIGTERM);
      outcome_.what = fmt::format("SIGTERM to the launcher after {:.2f} s", after);
      // A launcher that has no ranks yet ends as any program does.
      killed_ = true;
    } else if (fault_.kind == Kind::Flip) {
      process.kill_all();
      killed_ = true;
      outcome_.what = fmt::format("killed everything after {:.2f} s, {}", after,
                                  flip_bit(directory_ / "run" / "checkpoints", fault_.where));
    } else {
      hurt_rank(process, after);
    }
  }

  void hurt_rank(Process& process, double after) {
    std::map<int, pid_t> ranks = process.ranks();
    while (!ranks.contains(fault_.rank) && process.is_running()) {  // it is about to be started
      std::this_thread::sleep_for(milliseconds(2));
      ranks = process.ranks();
    }
    const auto found = ranks.find(fault_.rank);
    if (found == ranks.end()) {
      outcome_.what = fmt::format("rank {} had ended before {:.2f} s", fault_.rank, after);
      return;
    }
    const bool kills = fault_.kind == Kind::Kill;
    ::kill(found->second, kills ? SIGKILL : SIGSTOP);
    outcome_.what =
        fmt::format("{} rank {} after {:.2f} s", kills ? "killed" : "stopped", fault_.rank, after);
    if (kills || setup_.num_ranks > 1) return;
    process.wait(in_ms(setup_.stop_s));  // nobody else waits for it
    ::kill(found->second, SIGCONT);
  }

  std::string compare() {
    const std::string own = (directory_ / "run").string(),
                      theirs = (setup_.directory / "undisturbed/run").string();
    if (run(setup_, {"inspect", own, "--verify"}, log()) != 0) return "damaged: " + last_line(log());
    if (run(setup_, {"inspect", theirs, "--compare", own}, log()) != 0)
      return "differs from the undisturbed run: " + last_line(log());
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / "run/checkpoints")) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(".tmp")) return name + " is left lying about";
    }
    return "";
  }

  const Setup& setup_;
  const Fault& fault_;
  std::filesystem::path directory_;
  double undisturbed_s_;
  bool killed_ = false;  // on purpose: any exit code will do
  Outcome outcome_;
};

}  // namespace

std::filesystem::path trial_directory(const Setup& setup, int64_t number) {
  return setup.directory / fmt::format("trial-{}", number);
}

double run_undisturbed(const Setup& setup) {
  const std::filesystem::path directory = setup.directory / "undisturbed";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  const double start = steady_s();
  Process process(train_words(setup, directory), directory / "output.log", counting(setup, directory));
  const int code = *process.wait(std::chrono::hours(24 * 365));
  if (code != 0)
    throw TrainError("the undisturbed run ended with exit code {}: {}; its output is in {}", code,
                     last_line(directory / "output.log"), (directory / "output.log").string());
  return steady_s() - start;
}

Outcome run_trial(const Setup& setup, const Fault& fault, int64_t number, double undisturbed_s) {
  return Trial(setup, fault, trial_directory(setup, number), undisturbed_s).run_to_the_end();
}

}  // namespace tandem::chaos
