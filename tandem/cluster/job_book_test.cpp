#include "tandem/cluster/job_book.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/cluster/slurm_queue.h"

namespace tandem::cluster {
namespace {

SubmittedJob job(const std::string& id, const std::string& name, const std::string& time) {
  return {"slurm", id, name, "a.yaml", "/shared/x", "slurm-%j.out", time, "runs/a", "", ""};
}

TEST(JobBook, FindsByNumberByTaskAndTheNewestByName) {
  const TemporaryDirectory directory;
  const JobBook book(directory.path() / "new/jobs");
  book.add(job("7", "it's \"a\"\n", "2026-01-01T00:00:00Z"));
  book.add(job("12", "b", "2026-01-02T00:00:00Z"));
  book.add(job("13", "b", "2026-01-03T00:00:00Z"));
  EXPECT_EQ("it's \"a\"\n", book.find("7").name);
  EXPECT_EQ("12", book.find("12_3").id);
  EXPECT_EQ("13", book.find("b").id);
  EXPECT_EQ("/shared/x", book.find("b").directory);
}

TEST(JobBook, KeepsJobsOfKubernetesByNamespaceAndName) {
  const TemporaryDirectory directory;
  const JobBook book(directory.path());
  for (const char* space : {"a", "b"})
    book.add({"kubernetes", std::string(space) + "/run", "run", "a.yaml", "", "",
              std::string("2026-01-0") + (*space == 'a' ? "1" : "2"), "", "staging", "JobSet"});
  EXPECT_EQ("a/run", book.find("a/run").id);
  EXPECT_EQ("b/run", book.find("run").id);
  EXPECT_EQ("staging", book.find("run").context);
  EXPECT_EQ("JobSet", book.find("run").object);
  EXPECT_FALSE(book.look_for("c/run").has_value());
}

TEST(JobBook, AnUnknownJobIsOneLineWithTheLastOnes) {
  const TemporaryDirectory directory;
  const JobBook book(directory.path());
  EXPECT_THROW(book.find("7"), ConfigError);
  book.add(job("7", "a", "2026-01-01T00:00:00Z"));
  directory.write("broken.json", "{");
  try {
    book.find("8");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string::npos, std::string(error.what()).find("7 (a)")) << error.what();
  }
}

TEST(SlurmOutput, PatternsStandForTheJobsNumberTaskAndName) {
  EXPECT_EQ("/d/slurm-7.out", slurm_output_path("slurm-%j.out", "7", "n", "/d"));
  EXPECT_EQ("/d/n-7_3-100%", slurm_output_path("%x-%A_%a-100%%", "7_3", "n", "/d"));
  EXPECT_EQ("/elsewhere", slurm_output_path("/elsewhere", "7", "n", "/d"));
  EXPECT_THROW(slurm_output_path("slurm-%A_%a.out", "7", "n", "/d"), ConfigError);
  EXPECT_THROW(slurm_output_path("%N.out", "7", "n", "/d"), ConfigError);
}

}  // namespace
}  // namespace tandem::cluster
