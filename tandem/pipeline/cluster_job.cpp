#include "tandem/pipeline/cluster_job.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <memory>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/json_text.h"
#include "tandem/base/system.h"
#include "tandem/cluster/kubernetes_jobs.h"
#include "tandem/cluster/kubernetes_manifest.h"
#include "tandem/cluster/slurm_queue.h"
#include "tandem/cluster/slurm_script.h"
#include "tandem/config/values.h"
#include "tandem/launch/signals.h"
#include "tandem/pipeline/job_end.h"

namespace tandem::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr double kShortestPauseS = 0.2, kLongestPauseS = 5;
constexpr double kLateFilesS = 20;  // file systems that are shared show a new file late
constexpr int kNobody = 65532;

// What an attendant asks of a cluster.
struct Calls {
  std::function<std::optional<std::string>()> find;  // the id of the job that is there
  std::function<std::string()> submit;
  std::function<bool(const std::string& id)> is_alive;
  std::function<void(const std::string&id)> cancel, tidy;
};

Calls slurm_calls(const JobNote& note) {
  return {[&note] { return cluster::find_in_slurm(note.name); },
          [&note] { return cluster::submit_to_slurm(note.script); },
          [](const std::string& id) { return !cluster::slurm_state(id).state.empty(); },
          [](const std::string& id) { cluster::cancel_in_slurm(id); }, [](const std::string&) {}};
}

Calls kubernetes_calls(const JobNote& note) {
  const auto client =
      std::make_shared<cluster::KubernetesClient>(cluster::find_kubernetes(note.context));  // by all of them
  const cluster::KubernetesJob job{note.object["metadata"]["namespace"], note.object["metadata"]["name"],
                                   false};
  const auto is_alive = [client, job](const std::string&) {
    const std::string state = cluster::kubernetes_state(*client, job).state;
    return !state.empty() && state != "Complete" && state != "Failed";
  };
  const auto remove = [client, job](const std::string&) {
    cluster::cancel_in_kubernetes(*client, job, cluster::Going::AfterItsPods);
  };
  return {[is_alive, job]() -> std::optional<std::string> {
            return is_alive("") ? std::optional(job.name) : std::nullopt;
          },
          [client, job, remove, &note] {
            // What is left of an attempt of this number, whose store somebody has deleted, makes room.
            for (remove(""); !cluster::kubernetes_state(*client, job).state.empty();)
              std::this_thread::sleep_for(std::chrono::milliseconds(200));
            cluster::submit_to_kubernetes(*client, {note.object});
            return job.name;
          },
          is_alive, remove, remove};
}

Calls calls_of(const JobNote& note) {
  return note.where == Where::Slurm ? slurm_calls(note) : kubernetes_calls(note);
}

cluster::Job job_of(const Plan& plan, size_t step, const std::string& name, const fs::path& file) {
  const ClusterSpec& spec = plan.graph.steps[step].spec->cluster;
  cluster::Job job;
  job.name = name;
  job.gpus_per_node = static_cast<int>(spec.gpus);
  job.cpus_per_node = static_cast<int>(spec.cpus);
  job.memory_per_node = spec.memory;
  const bool here = plan.graph.steps[step].spec->where == Where::Slurm;
  job.program = !spec.program.empty() ? spec.program : here ? own_program() : "tandem";
  job.words = {"pipeline", "step", file.string()};
  return job;
}

std::string slurm_script_of(const Plan& plan, size_t step, const cluster::Job& job, const fs::path& home) {
  const ClusterSpec& spec = plan.graph.steps[step].spec->cluster;
  cluster::SlurmOptions options;
  options.time = spec.time;
  options.partition = spec.partition;
  options.account = spec.account;
  options.qos = spec.qos;
  options.constraint = spec.constraint;
  options.directory = fs::absolute(plan.folder()).lexically_normal().string();
  for (const char c : (home / kLog).string()) options.output += c == '%' ? "%%" : std::string(1, c);
  return cluster::slurm_script(job, options);
}

Json kubernetes_object_of(const Plan& plan, size_t step, const cluster::Job& job) {
  const StepSpec& spec = *plan.graph.steps[step].spec;
  const std::string folder = fs::absolute(plan.folder()).lexically_normal().string();
  const bool seen =
      std::any_of(spec.cluster.claims.begin(), spec.cluster.claims.end(), [&](const std::string& claim) {
        const std::string path = claim.substr(std::min(claim.find(':'), claim.size() - 1) + 1);
        return !path.empty() && (folder + "/").starts_with(path.ends_with('/') ? path : path + "/");
      });
  if (!seen)
    throw ConfigError(
        "{}: on kubernetes: pods have to see {}; expected a claim NAME:PATH whose PATH it is below, here as "
        "there",
        spec.place, folder);
  cluster::KubernetesOptions options;
  options.image = spec.cluster.image;
  if (options.image.empty())
    throw ConfigError("{}: on kubernetes: expected kubernetes.image, an image that has tandem on its PATH",
                      spec.place);
  options.claims = spec.cluster.claims;
  options.environment = spec.cluster.env_secrets;
  options.selectors = spec.cluster.selectors;
  options.tolerations = spec.cluster.tolerations;
  options.service_account = spec.cluster.service_account;
  if (!spec.cluster.shm.empty()) options.shared_memory = spec.cluster.shm;
  options.space =
      spec.cluster.space.empty() ? cluster::find_kubernetes(spec.cluster.context).space : spec.cluster.space;
  options.user = static_cast<int>(user_of(spec.cluster));
  options.directory = folder;
  options.retries = 0;  // the pipeline tries again
  return cluster::kubernetes_objects(job, options).back();
}

}  // namespace

int64_t user_of(const ClusterSpec& spec) {
  if (spec.user > 0) return spec.user;
  return ::geteuid() > 0 ? ::geteuid() : kNobody;
}

JobNote make_note(const Plan& plan, size_t step, int64_t attempt) {
  const Work& work = plan.work[step];
  const StepSpec& spec = *plan.graph.steps[step].spec;
  const fs::path home = fs::absolute(plan.home(step)).lexically_normal();
  JobNote note;
  note.where = spec.where;
  note.name = fmt::format("step-{}-{}", digest_of(home.string()).substr(0, 16), attempt);
  note.attempt = attempt;
  note.folder = fs::absolute(plan.folder()).lexically_normal().string();
  note.command = work.command;
  note.environment = work.environment;
  note.output = work.output;
  note.log = (home / kLog).string();
  note.captures = work.captures;
  note.keeps = work.resumes && !work.appears_whole;
  const cluster::Job job = job_of(plan, step, note.name, home / kJobNote);
  if (spec.where == Where::Slurm) {
    note.script = slurm_script_of(plan, step, job, home);
  } else {
    note.object = kubernetes_object_of(plan, step, job);
    note.context = spec.cluster.context;
  }
  return note;
}

Fate fate_of(const fs::path& note_file, const JobNote& note) {
  if (read_end(note_file, note)) return Fate::Ended;
  const Calls calls = calls_of(note);
  const bool is_there = note.id.empty() ? calls.find().has_value() : calls.is_alive(note.id);
  if (is_there) return Fate::Alive;
  return read_end(note_file, note) ? Fate::Ended : Fate::Gone;  // it may have ended between the two
}

int attend(const fs::path& note_file) {
  std::optional<JobNote> note = read_note(note_file);
  if (!note) throw ConfigError("{}: is no note of a pipeline's job", note_file.string());
  SignalReader signals;
  const Calls calls = calls_of(*note);
  if (note->id.empty()) {
    const std::optional<std::string> found = calls.find();
    note->id = found ? *found : calls.submit();
    write_note(note_file, *note);
    std::fprintf(stderr, "job %s on %s\n", note->id.c_str(), std::string(name_of(note->where)).c_str());
  }
  double pause_s = kShortestPauseS, gone_s = 0;
  bool cancelled = false;
  for (;;) {
    try {
      if (gone_s == 0 && !calls.is_alive(note->id)) gone_s = steady_s();
    } catch (const IoError& error) {  // a cluster that cannot be asked has not ended the job
      std::fprintf(stderr, "tandem pipeline: %s\n", error.what());
    }
    if (const std::optional<JobEnd> end = read_end(note_file, *note)) {
      calls.tidy(note->id);
      return end->code;
    }
    if (gone_s > 0 && (cancelled || steady_s() - gone_s > kLateFilesS)) {
      if (!cancelled)
        std::fprintf(stderr,
                     "tandem pipeline: job %s is gone from %s, and nothing on the node tells how it ended\n",
                     note->id.c_str(), std::string(name_of(note->where)).c_str());
      calls.tidy(note->id);
      return cancelled ? 128 + SIGTERM : 1;
    }
    pollfd poll_for{signals.fd(), POLLIN, 0};
    ::poll(&poll_for, 1, static_cast<int>(pause_s * 1000));
    pause_s = std::min(pause_s * 1.2, kLongestPauseS);
    for (const int signal : signals.take()) {
      if (!signals.asks_to_stop(signal) || cancelled) continue;
      calls.cancel(note->id);
      cancelled = true;
      pause_s = kShortestPauseS;
    }
  }
}

}  // namespace tandem::pipeline
