// tandem submit: a run as a job of a cluster's.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/cli/command.h"
#include "tandem/cluster/cloud_init.h"
#include "tandem/cluster/job_book.h"
#include "tandem/cluster/kubernetes_jobs.h"
#include "tandem/cluster/kubernetes_manifest.h"
#include "tandem/cluster/skypilot_task.h"
#include "tandem/cluster/slurm_queue.h"
#include "tandem/cluster/slurm_script.h"

namespace tandem::cli {
namespace {

struct SubmitFlags {
  ConfigFlags config;
  cluster::Job job;
  cluster::SlurmOptions slurm;
  cluster::KubernetesOptions kubernetes;
  cluster::SkyPilotOptions skypilot;
  cluster::CloudInitOptions cloud;
  std::string package;
  std::string run_dir;
  std::string default_run;  // where none is named
  std::string context;
  CLI::Option* space = nullptr;
  bool to_slurm = false, to_kubernetes = false, to_skypilot = false, to_cloud = false;
  bool dry_run = false, no_launcher = false;
  // A flag, and whether one of its kinds was chosen.
  std::vector<std::pair<CLI::Option*, std::vector<const bool*>>> of_some_kinds;
};

// As the first task of an array has it.
std::string of_task_1(std::string text) {
  for (size_t at; (at = text.find("%a")) != std::string::npos;) text.replace(at, 2, "1");
  return text;
}

// What is wrong with the config is said now and not when the queue has come to the job.
void fill_job(SubmitFlags& flags) {
  cluster::Job& job = flags.job;
  if (job.ranks_per_node == 0) job.ranks_per_node = std::max(1, job.gpus_per_node);
  if (job.program.empty())
    job.program = flags.to_slurm ? own_program() : "tandem";  // others have an image or a package
  WorldInfo world;
  world.world_size = job.nodes * job.ranks_per_node;
  ConfigFlags checked = flags.config;
  if (!flags.slurm.array.empty()) {
    for (std::string& assignment : checked.sets) assignment = of_task_1(assignment);
  }
  const ResolvedConfig resolved = checked.load(world, flags.run_dir);
  flags.default_run = "runs/" + resolved.config.name;
  if (job.name.empty()) job.name = resolved.config.name;
  job.config = flags.config.file;
  for (const std::string& assignment : flags.config.sets) {
    job.arguments.push_back("--set");
    job.arguments.push_back(assignment);
  }
  for (const auto& [flag, value] :
       {std::pair{"--device", flags.config.device}, std::pair{"--run-dir", flags.run_dir}}) {
    if (value.empty()) continue;
    job.arguments.push_back(flag);
    job.arguments.push_back(value);
  }
}

// The id alone on standard output, for scripts.
ExitCode tell(const std::string& id) {
  std::printf("%s\n", id.c_str());
  std::fprintf(
      stderr,
      "submitted; tandem status %s tells how it stands, tandem logs %s --follow shows it, tandem cancel %s "
      "ends it\n",
      id.c_str(), id.c_str(), id.c_str());
  return ExitCode::Done;
}

ExitCode submit_slurm(SubmitFlags& flags) {
  cluster::SlurmOptions& options = flags.slurm;
  options.launcher = !flags.no_launcher;
  options.directory = std::filesystem::current_path().string();
  if (!options.array.empty() && flags.run_dir.find("%a") == std::string::npos)
    throw ConfigError(
        "--array {}: each task needs a run directory of its own; add --run-dir runs/NAME-%a, where %a is the "
        "task's number",
        options.array);
  const std::string script = cluster::slurm_script(flags.job, options);
  if (flags.dry_run) {
    std::printf("%s", script.c_str());
    return ExitCode::Done;
  }
  const cluster::JobBook book = cluster::JobBook::of_user();
  const std::string id = cluster::submit_to_slurm(script);
  book.add({"slurm", id, flags.job.name, flags.job.config, options.directory, cluster::slurm_output(options),
            utc_time(), flags.run_dir.empty() ? flags.default_run : flags.run_dir, "", ""});
  return tell(id);
}

// A secret of this job's own, where the user has named none.
void make_secret(SubmitFlags& flags) {
  cluster::KubernetesOptions& options = flags.kubernetes;
  if (flags.job.nodes == 1 || !options.secret.empty()) return;
  options.secret = cluster::kubernetes_name(flags.job.name) + "-secret";
  if (flags.dry_run) {
    std::fprintf(stderr, "beside this, a Secret %s is made, with 64 random hex digits as its key `secret`\n",
                 options.secret.c_str());
  } else {
    options.new_secret = Secret::random().to_hex();
  }
}

ExitCode submit_kubernetes(SubmitFlags& flags) {
  cluster::KubernetesOptions& options = flags.kubernetes;
  options.config_text = read_text(flags.config.file);
  make_secret(flags);
  if (flags.dry_run) {
    std::printf("%s", cluster::kubernetes_manifest(flags.job, options).c_str());
    return ExitCode::Done;
  }
  if (options.image.empty()) cluster::kubernetes_objects(flags.job, options);  // says what is missing
  cluster::KubernetesClient client(cluster::find_kubernetes(flags.context));
  if (flags.space->count() == 0) options.space = client.access().space;
  const std::vector<nlohmann::ordered_json> objects = cluster::kubernetes_objects(flags.job, options);
  const cluster::JobBook book = cluster::JobBook::of_user();
  cluster::submit_to_kubernetes(client, objects);
  const std::string name = cluster::kubernetes_name(flags.job.name);
  book.add({"kubernetes", options.space + "/" + name, name, flags.job.config, "", "", utc_time(), "",
            client.access().context, options.jobset ? "JobSet" : "Job"});
  return tell(name);
}

// Printed; how to hand it over is said beside it.
ExitCode print(const SubmitFlags& flags, const std::string& text, const char* how) {
  std::printf("%s", text.c_str());
  if (!flags.dry_run) std::fprintf(stderr, "not submitted: %s\n", how);
  return ExitCode::Done;
}

void check_kind(const SubmitFlags& flags) {
  const int chosen = flags.to_slurm + flags.to_kubernetes + flags.to_skypilot + flags.to_cloud;
  if (chosen != 1)
    throw ConfigError("submit: say where to: one of --slurm, --kubernetes, --skypilot and --cloud-init");
  for (const auto& [option, kinds] : flags.of_some_kinds) {
    if (option->count() > 0 &&
        std::none_of(kinds.begin(), kinds.end(), [](const bool* kind) { return *kind; }))
      throw ConfigError(
          "{}: is for another kind of cluster than the one that was chosen; `tandem submit --help` has them",
          option->get_name());
  }
}

ExitCode run_submit(SubmitFlags& flags) {
  check_kind(flags);
  fill_job(flags);
  if (flags.to_slurm) return submit_slurm(flags);
  if (flags.to_kubernetes) return submit_kubernetes(flags);
  if (flags.to_skypilot) {
    flags.skypilot.package = flags.package;
    return print(flags, cluster::skypilot_task(flags.job, flags.skypilot),
                 "give it to `sky jobs launch` as a file");
  }
  flags.cloud.config_text = read_text(flags.config.file);
  flags.cloud.package = flags.package;
  return print(flags, cluster::cloud_init(flags.job, flags.cloud), "give it to a machine as its user data");
}

CLI::Option* add_text(CLI::App& command, const std::string& name, std::string& value, const std::string& type,
                      const std::string& what) {
  return command.add_option(name, value, what)->type_name(type);
}

CLI::Option* add_count(CLI::App& command, const std::string& name, int& value, int64_t least,
                       const std::string& what) {
  return command.add_option(name, value, what)->type_name("N")->check(whole_number(least, kMostInt));
}

void add_job_flags(CLI::App& command, SubmitFlags& flags) {
  flags.config.add_to(command);
  cluster::Job& job = flags.job;
  job.program.clear();
  job.ranks_per_node = 0;
  add_text(command, "--run-dir", flags.run_dir, "DIR", "as of tandem train; runs/<name> if not given");
  add_text(command, "--name", job.name, "NAME", "of the job; the config's if not given");
  add_count(command, "--nodes", job.nodes, 1, "how many (1)");
  add_count(command, "--gpus-per-node", job.gpus_per_node, 0, "to ask for, and a rank for each (0)");
  add_count(command, "--ranks-per-node", job.ranks_per_node, 1, "if not as many as GPUs, or 1 without");
  add_count(command, "--cpus-per-node", job.cpus_per_node, 1, "cores to ask for");
  add_text(command, "--memory-per-node", job.memory_per_node, "SIZE", "to ask for, in the cluster's words");
  add_count(command, "--max-restarts", job.max_restarts, 0, "of ranks that fail, by the launcher (3)");
  add_count(command, "--grace", job.grace_s, 1, "seconds for saving before a node is taken away (120)");
  add_text(command, "--program", job.program, "PATH", "tandem, as the nodes see it; this one if not given");
  command.add_flag("--dry-run", flags.dry_run, "print what would be submitted");
}

void add_slurm_flags(CLI::App& command, SubmitFlags& flags) {
  command.add_flag("--slurm", flags.to_slurm, "as a batch job of Slurm's");
  cluster::SlurmOptions& options = flags.slurm;
  const auto only = [&](CLI::Option* option) {
    flags.of_some_kinds.push_back({option->group("Slurm"), {&flags.to_slurm}});
  };
  only(add_text(command, "--time", options.time, "TIME",
                "limit, such as 12:00:00; the job goes on in the next one"));
  only(add_text(command, "--partition", options.partition, "NAME", "as sbatch's"));
  only(add_text(command, "--account", options.account, "NAME", "as sbatch's"));
  only(add_text(command, "--qos", options.qos, "NAME", "as sbatch's"));
  only(add_text(command, "--constraint", options.constraint, "LIST", "as sbatch's"));
  only(add_text(command, "--reservation", options.reservation, "NAME", "as sbatch's"));
  only(add_text(command, "--array", options.array, "TASKS",
                "such as 1-5%2: many runs; %a in --set and --run-dir is the task's number"));
  only(add_text(command, "--comment", options.comment, "TEXT", "as sbatch's"));
  only(add_text(command, "--output", options.output, "FILE",
                "where the output goes, as sbatch's (slurm-%j.out)"));
  only(command.add_flag("--exclusive", options.exclusive, "share the nodes with nobody"));
  only(command.add_flag("--no-launcher", flags.no_launcher,
                        "srun starts the ranks itself, and nobody restarts them"));
  only(add_count(command, "--max-requeues", options.max_requeues, 0,
                 "how often it goes on by itself after the time limit or a preemption (100)"));
  only(command
           .add_option("--sbatch", options.more_flags, "any other flag of sbatch's: --sbatch=--mail-type=END")
           ->type_name("FLAG")
           ->expected(1)
           ->allow_extra_args(false)
           ->take_all());
}

void add_kubernetes_flags(CLI::App& command, SubmitFlags& flags) {
  command.add_flag("--kubernetes", flags.to_kubernetes, "as an Indexed Job of Kubernetes'");
  cluster::KubernetesOptions& options = flags.kubernetes;
  const auto only = [&](CLI::Option* option) {
    flags.of_some_kinds.push_back({option->group("Kubernetes"), {&flags.to_kubernetes}});
  };
  const auto list = [&](const std::string& name, std::vector<std::string>& values, const std::string& type,
                        const std::string& what) {
    only(command.add_option(name, values, what)
             ->type_name(type)
             ->expected(1)
             ->allow_extra_args(false)
             ->take_all());
  };
  only(add_text(command, "--image", options.image, "IMAGE", "a container image that has tandem on its PATH"));
  flags.space =
      add_text(command, "--namespace", options.space, "NAME", "where it runs; the context's if not given");
  only(flags.space);
  only(add_text(command, "--context", flags.context, "NAME",
                "of the kubeconfig; its current one if not given"));
  only(command.add_flag("--jobset", options.jobset,
                        "as a JobSet, which begins anew with all pods where one fails"));
  only(
      add_text(command, "--secret", options.secret, "NAME",
               "a Secret whose key `secret` is 32 or more hex digits, for several nodes; made if not given"));
  list("--env-secret", options.environment, "NAME",
       "a Secret whose keys become variables, such as credentials of S3");
  list("--claim", options.claims, "NAME:PATH",
       "a PersistentVolumeClaim and where it is seen; /work is the working directory");
  only(add_text(command, "--shm", options.shared_memory, "SIZE", "most of /dev/shm (8Gi)"));
  list("--node-selector", options.selectors, "KEY=VALUE", "only nodes with this label");
  list("--toleration", options.tolerations, "KEY[=VALUE][:EFFECT]",
       "also nodes with this taint, as spot machines have");
  list("--resource", options.resources, "NAME=N", "to ask for beside GPUs: vpc.amazonaws.com/efa=4");
  only(add_text(command, "--close", options.close, "LABEL",
                "all pods where this label of nodes has one value"));
  only(add_text(command, "--spread", options.spread, "LABEL",
                "pods evenly over the values of this label of nodes"));
  only(add_text(command, "--service-account", options.service_account, "NAME",
                "that pods run as; without its token"));
  only(add_count(command, "--retries", options.retries, 0, "pods that may fail before the job does (100)"));
}

void add_cloud_flags(CLI::App& command, SubmitFlags& flags) {
  command.add_flag("--skypilot", flags.to_skypilot, "as a task of SkyPilot's: prints its YAML");
  command.add_flag("--cloud-init", flags.to_cloud, "as user data of one plain machine: prints it");
  cluster::SkyPilotOptions& options = flags.skypilot;
  const auto only = [&](CLI::Option* option) {
    flags.of_some_kinds.push_back({option->group("Clouds"), {&flags.to_skypilot}});
  };
  only(add_text(command, "--accelerator", options.accelerator, "NAME",
                "as SkyPilot names them, such as H100"));
  only(add_text(command, "--infra", options.infra, "PLACE",
                "such as aws or gcp/us-central1; anywhere if not given"));
  only(command.add_flag("--spot", options.spot, "machines that may be taken away, and are replaced"));
  only(add_text(command, "--bucket", options.bucket, "URL", "s3://... or gs://..., where the run is kept"));
  CLI::Option* package = add_text(command, "--package", flags.package, "FILE|URL",
                                  "a .deb of scripts/package: a file for SkyPilot, a URL for cloud-init");
  flags.of_some_kinds.push_back({package->group("Clouds"), {&flags.to_skypilot, &flags.to_cloud}});
}

}  // namespace

void add_submit(CLI::App& app, Action& action) {
  CLI::App* command = add_command(
      app, "submit", "hand a run to a cluster",
      "tandem submit --slurm --dry-run --nodes 2 --ranks-per-node 4 --time 12:00:00 configs/quickstart.yaml "
      "--set parallel.strategy=fsdp --set train.micro_batch=2");
  auto flags = std::make_shared<SubmitFlags>();
  add_job_flags(*command, *flags);
  add_slurm_flags(*command, *flags);
  add_kubernetes_flags(*command, *flags);
  add_cloud_flags(*command, *flags);
  command->callback([flags, &action] { action.run = [flags] { return run_submit(*flags); }; });
}

}  // namespace tandem::cli
