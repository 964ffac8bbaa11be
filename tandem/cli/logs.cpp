// tandem logs, tandem cancel: jobs that tandem submit has handed to a cluster.
#include <cstdio>
#include <fstream>
#include <memory>
#include <thread>

#include "tandem/base/file.h"
#include "tandem/cli/command.h"
#include "tandem/cli/submitted.h"
#include "tandem/cluster/slurm_queue.h"

namespace tandem::cli {
namespace {

constexpr std::chrono::milliseconds kPause{500};
constexpr int kPausesBetweenQuestions = 6;  // Slurm's controller serves everybody

struct LogFlags {
  std::string job;
  bool follow = false;
  int node = 0;
  CLI::Option* node_option = nullptr;
};

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

ExitCode follow_slurm(const Submitted& job, const std::string& path) {
  int64_t at = 0;
  std::string told;
  for (int pause = 0;; ++pause) {
    // Asked before the file is read: what a job wrote before it ended is there.
    const bool ask = pause % kPausesBetweenQuestions == 0;
    const cluster::SlurmState state = ask ? cluster::slurm_state(job.id) : cluster::SlurmState{"?", ""};
    show_more(path, at);
    if (state.state.empty()) return ExitCode::Done;
    const std::string words = in_words(state);
    if (ask && state.state != "RUNNING" && words != told)
      std::fprintf(stderr, "%s %s\n", job.name().c_str(), words.c_str());
    if (ask) told = words;
    if (std::ferror(stdout) != 0) return ExitCode::Done;  // its reader has gone; the caller says so
    std::this_thread::sleep_for(kPause);
  }
}

ExitCode show_slurm_logs(const Submitted& job, bool follow) {
  const std::string path =
      cluster::slurm_output_path(job.job.output, job.id, job.job.name, job.job.directory);
  if (follow) return follow_slurm(job, path);
  int64_t at = 0;
  if (show_more(path, at)) return ExitCode::Done;
  const std::string state = in_words(cluster::slurm_state(job.id));
  std::fprintf(stderr, "%s %s; it has written nothing to %s yet\n", job.name().c_str(), state.c_str(),
               path.c_str());
  return ExitCode::Done;
}

ExitCode show_logs(const LogFlags& flags) {
  const Submitted job = submitted(flags.job);
  if (!job.on_kubernetes()) {
    if (flags.node_option->count() > 0)
      throw ConfigError("--node: is for jobs on Kubernetes; one on Slurm has one output for all nodes");
    return show_slurm_logs(job, flags.follow);
  }
  const auto client = cluster_of(job);
  bool any = false;
  cluster::read_kubernetes_log(
      *client, job.kubernetes(), flags.node, flags.follow,
      [&](std::string_view bytes) {
        any = true;
        std::fwrite(bytes.data(), 1, bytes.size(), stdout);
        return std::fflush(stdout) == 0;
      },
      [&](const std::string& why) { std::fprintf(stderr, "%s %s\n", job.name().c_str(), why.c_str()); });
  if (!any) std::fprintf(stderr, "%s: there is no output of node %d\n", job.name().c_str(), flags.node);
  return ExitCode::Done;
}

// Whether there was something to end.
bool end_job(const Submitted& job) {
  if (job.on_kubernetes()) return cluster::cancel_in_kubernetes(*cluster_of(job), job.kubernetes());
  if (cluster::slurm_state(job.id).state.empty()) return false;
  cluster::cancel_in_slurm(job.id);
  return true;
}

ExitCode cancel(const std::string& number_or_name) {
  const Submitted job = submitted(number_or_name);
  std::printf(end_job(job) ? "%s is cancelled; what it has saved stays\n" : "%s has ended already\n",
              job.name().c_str());
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
  flags->node_option =
      command->add_option("--node", flags->node, "of Kubernetes: the number of the pod to read (0)")
          ->type_name("N")
          ->check(whole_number(0, kMostInt));
  command->callback([flags, &action] { action.run = [flags] { return show_logs(*flags); }; });
}

void add_cancel(CLI::App& app, Action& action) {
  CLI::App* command = add_command(app, "cancel", "end a submitted job", "tandem cancel 4711");
  auto job = std::make_shared<std::string>();
  command->add_option("JOB", *job, "its number, as tandem submit printed it, or its name")->required();
  command->callback([job, &action] { action.run = [job] { return cancel(*job); }; });
}

}  // namespace tandem::cli
