// tandem logs, tandem cancel: jobs that tandem submit has handed to a cluster.
#include <cstdio>
#include <fstream>
#include <memory>
#include <thread>

#include "tandem/base/file.h"
#include "tandem/cli/command.h"
#include "tandem/cluster/job_book.h"
#include "tandem/cluster/slurm_queue.h"

namespace tandem::cli {
namespace {

constexpr std::chrono::milliseconds kPause{500};
constexpr int kPausesBetweenQuestions = 6;  // Slurm's controller serves everybody

struct LogFlags {
  std::string job;
  bool follow = false;
};

struct NamedJob {
  cluster::SubmittedJob job;
  std::string id;  // of a task, where one was named
};

NamedJob named(const std::string& number_or_name) {
  cluster::SubmittedJob job = cluster::JobBook::of_user().find(number_or_name);
  const bool is_task = number_or_name.starts_with(job.id + "_");
  return {job, is_task ? number_or_name : job.id};
}

std::string in_words(const cluster::SlurmState& state) {
  if (state.state.empty()) return "has ended";
  const bool has_reason = !state.reason.empty() && state.reason != "None";
  return fmt::format("is {}{}", state.state, has_reason ? fmt::format(" ({})", state.reason) : "");
}

// Shows what there is from `at` on; true where there was something.
bool show_more(const std::string& path, int64_t& at) {
  if (!is_there(path)) return false;
  std::ifstream file(path, std::ios::binary);
  file.seekg(at);
  char buffer[1 << 16];
  bool any = false;
  while (file.read(buffer, sizeof(buffer)), file.gcount() > 0) {
    std::fwrite(buffer, 1, static_cast<size_t>(file.gcount()), stdout);
    at += file.gcount();
    any = true;
  }
  if (any) std::fflush(stdout);
  return any;
}

ExitCode show_logs(const LogFlags& flags) {
  const NamedJob job = named(flags.job);
  const std::string path =
      cluster::slurm_output_path(job.job.output, job.id, job.job.name, job.job.directory);
  int64_t at = 0;
  if (!flags.follow) {
    if (show_more(path, at)) return ExitCode::Done;
    const std::string state = in_words(cluster::slurm_state(job.id));
    std::fprintf(stderr, "job %s %s; it has written nothing to %s yet\n", job.id.c_str(), state.c_str(),
                 path.c_str());
    return ExitCode::Done;
  }
  std::string told;
  for (int pause = 0;; ++pause) {
    // Asked before the file is read: what a job wrote before it ended is there.
    const bool ask = pause % kPausesBetweenQuestions == 0;
    const cluster::SlurmState state = ask ? cluster::slurm_state(job.id) : cluster::SlurmState{"?", ""};
    show_more(path, at);
    if (state.state.empty()) return ExitCode::Done;
    const std::string words = in_words(state);
    if (ask && state.state != "RUNNING" && words != told)
      std::fprintf(stderr, "job %s %s\n", job.id.c_str(), words.c_str());
    if (ask) told = words;
    if (std::ferror(stdout) != 0) return ExitCode::Done;  // its reader has gone; the caller says so
    std::this_thread::sleep_for(kPause);
  }
}

ExitCode cancel(const std::string& number_or_name) {
  const NamedJob job = named(number_or_name);
  const std::string id = job.id;
  if (cluster::slurm_state(id).state.empty()) {
    std::printf("job %s has ended already\n", id.c_str());
    return ExitCode::Done;
  }
  cluster::cancel_in_slurm(id);
  std::printf("job %s is cancelled; what it has saved stays\n", id.c_str());
  return ExitCode::Done;
}

}  // namespace

void add_logs(CLI::App& app, Action& action) {
  CLI::App* command =
      add_command(app, "logs", "what a submitted job has printed", "tandem logs 4711 --follow");
  auto flags = std::make_shared<LogFlags>();
  command
      ->add_option("JOB", flags->job,
                   "its number, as tandem submit printed it (123_4: a task of an array), or its name")
      ->required();
  command->add_flag("--follow", flags->follow, "go on until the job has ended");
  command->callback([flags, &action] { action.run = [flags] { return show_logs(*flags); }; });
}

void add_cancel(CLI::App& app, Action& action) {
  CLI::App* command = add_command(app, "cancel", "end a submitted job", "tandem cancel 4711");
  auto job = std::make_shared<std::string>();
  command->add_option("JOB", *job, "its number, as tandem submit printed it, or its name")->required();
  command->callback([job, &action] { action.run = [job] { return cancel(*job); }; });
}

}  // namespace tandem::cli
