#include "tandem/cluster/slurm_script.h"

#include <fmt/format.h>

#include "tandem/base/error.h"
#include "tandem/cluster/quoting.h"

namespace tandem::cluster {
namespace {

constexpr std::string_view kTask = "%a";

std::string directives(const Job& job, const SlurmOptions& options) {
  std::string lines;
  const auto add = [&](std::string_view flag, std::string_view value) {
    if (!value.empty())
      lines += fmt::format("#SBATCH --{}={}\n", flag, sbatch_value(value, fmt::format("--{}", flag)));
  };
  add("job-name", job.name);
  add("nodes", std::to_string(job.nodes));
  add("ntasks-per-node", std::to_string(options.launcher ? 1 : job.ranks_per_node));
  if (job.gpus_per_node > 0) add("gpus-per-node", std::to_string(job.gpus_per_node));
  if (job.cpus_per_node > 0) {
    add("cpus-per-task",
        std::to_string(options.launcher ? job.cpus_per_node
                                        : std::max(1, job.cpus_per_node / job.ranks_per_node)));
  }
  add("mem", job.memory_per_node);
  add("time", options.time);
  add("partition", options.partition);
  add("account", options.account);
  add("qos", options.qos);
  add("constraint", options.constraint);
  add("reservation", options.reservation);
  add("array", options.array);
  add("comment", options.comment);
  if (options.exclusive) lines += "#SBATCH --exclusive\n";
  add("chdir", options.directory);
  add("output", slurm_output(options));
  add("open-mode", "append");
  lines += job.words.empty() ? "#SBATCH --requeue\n" : "#SBATCH --no-requeue\n";
  add("signal", fmt::format("TERM@{}", job.grace_s));
  for (const std::string& flag : options.more_flags) {
    const size_t equals = flag.find('=');
    if (!flag.starts_with("--") || flag.find_first_of(" \t\"'\\#", 0) < equals)
      throw ConfigError("--sbatch: expected a flag of sbatch's such as --mail-type=END, found '{}'", flag);
    if (equals == std::string::npos) {
      lines += fmt::format("#SBATCH {}\n", sbatch_value(flag, "--sbatch"));
    } else {
      add(flag.substr(2, equals - 2), flag.substr(equals + 1));
    }
  }
  return lines;
}

// The argument as a word of the script's; where there is an array, %a is its task's number.
std::string word_of(const std::string& argument, bool is_array) {
  std::string word;
  size_t at = 0;
  for (size_t found; is_array && (found = argument.find(kTask, at)) != std::string::npos;
       at = found + kTask.size()) {
    if (found > at) word += shell_word(std::string_view(argument).substr(at, found - at), "--set");
    word += "\"$SLURM_ARRAY_TASK_ID\"";
  }
  if (at < argument.size() || word.empty())
    word += shell_word(std::string_view(argument).substr(at), "--set");
  return word;
}

std::string training(const Job& job, const SlurmOptions& options) {
  std::string words = "train " + shell_word(job.config, "CONFIG");
  for (const std::string& argument : job.arguments) words += " " + word_of(argument, !options.array.empty());
  return words;
}

// srun stopped handing sbatch's --cpus-per-task on with version 22.05.
std::string srun(const Job& job) {
  return job.cpus_per_node > 0 ? "srun --cpus-per-task=\"$SLURM_CPUS_PER_TASK\"" : "srun";
}

std::string meeting(const Job& job, const SlurmOptions& options) {
  if (job.nodes == 1 && options.launcher) return "";
  const std::string where = options.launcher ? "head=$(" : "export MASTER_ADDR=$(";
  const std::string port = options.launcher ? "port=" : "export MASTER_PORT=";
  return fmt::format(
      "# The nodes meet at the first of them, at a port of this job's. A secret that lives as long as the "
      "job tells them\n"
      "# from strangers; the working directory is one that all nodes share.\n"
      "{}scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
      "{}$((20000 + SLURM_JOB_ID % 5000 * 2))\n"
      "export TANDEM_SECRET_FILE=$PWD/.tandem-secret-$SLURM_JOB_ID\n"
      "(umask 077; head -c 32 /dev/urandom | base64 > \"$TANDEM_SECRET_FILE\")\n\n",
      where, port);
}

std::string start(const Job& job, const SlurmOptions& options) {
  const std::string program = shell_word(job.program, "--program");
  if (!options.launcher)
    return fmt::format("# Slurm starts the ranks itself.\n{} {} {}\n", srun(job), program,
                       training(job, options));
  const std::string flags = fmt::format("--nproc-per-node {} --max-restarts {} --grace {}",
                                        job.ranks_per_node, job.max_restarts, job.grace_s);
  if (job.nodes == 1)
    return fmt::format("# The launcher starts ranks again that fail.\n{} {} launch {} \\\n  {}\n", srun(job),
                       program, flags, training(job, options));
  return fmt::format(
      "# One launcher a node, numbered as Slurm numbers them, which starts ranks again that fail.\n"
      "{} bash -c 'PET_NODE_RANK=$SLURM_NODEID exec \"$@\"' node \\\n"
      "  {} launch --nnodes \"$SLURM_NNODES\" {} \\\n"
      "  --rdzv-endpoint \"$head:$port\" --rdzv-id \"$SLURM_JOB_ID-${{SLURM_RESTART_COUNT:-0}}\" \\\n"
      "  {}\n",
      srun(job), program, flags, training(job, options));
}

std::string ending(const Job& job, const SlurmOptions& options) {
  const bool has_secret = job.nodes > 1 || !options.launcher;
  const char* id = options.array.empty() ? "$SLURM_JOB_ID" : "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID";
  return fmt::format(
      "code=$?\n{}\n"
      "# 75: Slurm wants the nodes back, and the work is saved. The job goes on when it is started again; "
      "one that somebody\n"
      "# has cancelled is no longer running, and stays cancelled.\n"
      "job={}\n"
      "if [ \"$code\" -eq 75 ] && [ \"${{SLURM_RESTART_COUNT:-0}}\" -lt {} ] &&\n"
      "   [ \"$(squeue --noheader --job \"$job\" --format %T)\" = RUNNING ]; then\n"
      "  echo \"tandem submit: saved; job $job goes back into the queue\"\n"
      "  scontrol requeue \"$job\" && sleep 60  # Slurm ends this script\n"
      "fi\n"
      "exit \"$code\"\n",
      has_secret ? "rm -f \"$TANDEM_SECRET_FILE\"\n" : "", id, options.max_requeues);
}

}  // namespace

std::string slurm_output(const SlurmOptions& options) {
  if (!options.output.empty()) return options.output;
  return options.array.empty() ? "slurm-%j.out" : "slurm-%A_%a.out";
}

std::string slurm_script(const Job& job, const SlurmOptions& options) {
  if (!job.words.empty()) {
    std::string words = shell_word(job.program, "program");
    for (const std::string& word : job.words) words += " " + shell_word(word, "words");
    return fmt::format(
        "#!/bin/bash\n{}\n# A task of Slurm's, which it tells at once when the node is wanted back.\nexec {} "
        "{}\n",
        directives(job, options), srun(job), words);
  }
  return fmt::format("#!/bin/bash\n# By tandem submit --slurm, for {}.\n{}\n{}{}{}", comment_text(job.config),
                     directives(job, options), meeting(job, options), start(job, options),
                     ending(job, options));
}

}  // namespace tandem::cluster
