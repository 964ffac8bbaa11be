#include "tandem/cluster/slurm_script.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem::cluster {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Job job() {
  Job job;
  job.name = "a";
  job.config = "a.yaml";
  job.program = "/opt/tandem";
  return job;
}

TEST(SlurmScript, OneNodeNeedsNoMeetingAndNoSecret) {
  const std::string script = slurm_script(job(), {});
  EXPECT_TRUE(has(script, "srun /opt/tandem launch --nproc-per-node 1 --max-restarts 3 --grace 120"));
  EXPECT_TRUE(has(script, "train a.yaml\n"));
  EXPECT_FALSE(has(script, "SECRET"));
  EXPECT_FALSE(has(script, "--rdzv"));
}

TEST(SlurmScript, SaysWhatWasAskedForAndNothingElse) {
  Job large = job();
  large.nodes = 4;
  large.gpus_per_node = large.ranks_per_node = 8;
  large.cpus_per_node = 96;
  large.memory_per_node = "800G";
  SlurmOptions options;
  options.time = "12:00:00";
  options.partition = "gpu";
  options.account = "lab";
  options.more_flags = {"--mail-type=END", "--contiguous"};
  const std::string script = slurm_script(large, options);
  for (const char* line :
       {"--nodes=4", "--ntasks-per-node=1", "--gpus-per-node=8", "--cpus-per-task=96", "--mem=800G",
        "--time=12:00:00", "--partition=gpu", "--account=lab", "--requeue", "--signal=TERM@120",
        "--open-mode=append", "--mail-type=END", "--contiguous", "--output=slurm-%j.out"})
    EXPECT_TRUE(has(script, std::string("#SBATCH ") + line + "\n")) << line;
  for (const char* flag : {"--qos", "--constraint", "--array", "--comment", "--exclusive", "--reservation"})
    EXPECT_FALSE(has(script, flag)) << flag;
  EXPECT_TRUE(has(script, "srun --cpus-per-task=\"$SLURM_CPUS_PER_TASK\" bash"));
}

TEST(SlurmScript, WithoutTheLauncherSlurmStartsTheRanks) {
  Job plain = job();
  plain.nodes = 2;
  plain.ranks_per_node = 4;
  plain.cpus_per_node = 8;
  SlurmOptions options;
  options.launcher = false;
  const std::string script = slurm_script(plain, options);
  EXPECT_TRUE(has(script, "#SBATCH --ntasks-per-node=4\n#SBATCH --cpus-per-task=2\n"));
  EXPECT_TRUE(has(script, "/opt/tandem train a.yaml\n"));
  EXPECT_TRUE(has(script, "export MASTER_ADDR="));
  EXPECT_FALSE(has(script, " launch "));
}

TEST(SlurmScript, AnArraysTasksHaveNamesOfTheirOwn) {
  Job many = job();
  many.arguments = {"--run-dir", "runs/it's-%a", "--set", "seed=%a"};
  SlurmOptions options;
  options.array = "1-5%2";
  const std::string script = slurm_script(many, options);
  EXPECT_TRUE(has(script, "#SBATCH --array=1-5%2\n"));
  EXPECT_TRUE(
      has(script, R"(--run-dir 'runs/it'\''s-'"$SLURM_ARRAY_TASK_ID" --set seed="$SLURM_ARRAY_TASK_ID")"));
  EXPECT_TRUE(has(script, "job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID\n"));
}

TEST(SlurmScript, RefusesWhatSbatchWouldReadAsMore) {
  SlurmOptions options;
  options.comment = "a\n#SBATCH --uid=0";
  EXPECT_THROW(slurm_script(job(), options), ConfigError);
  options = {};
  for (const char* flag : {"mail", "--a b=c", "--a\n#SBATCH --uid=0"}) {
    options.more_flags = {flag};
    EXPECT_THROW(slurm_script(job(), options), ConfigError) << flag;
  }
}

}  // namespace
}  // namespace tandem::cluster
