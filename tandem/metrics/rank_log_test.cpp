#include "tandem/metrics/rank_log.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

TEST(RankLog, GoesOnBehindWhatIsThereAndTimesEveryLine) {
  const TemporaryDirectory run_dir;
  StepRecord record;
  record.step = 1;
  record.loss = 1.5f;
  for (int attempt = 1; attempt <= 2; ++attempt) {
    RankLog log(run_dir.path(), 3, 10);
    log.line(fmt::format("attempt {}", attempt));
    log.step(record);
    std::ifstream file(run_dir.path() / "logs" /
                       "rank-3.log");  // while it is open: nothing waits in a buffer
    int lines = 0;
    for (std::string line; std::getline(file, line); ++lines) {
      EXPECT_EQ(line[4], '-') << line;
      EXPECT_EQ(line[10], 'T') << line;
      const std::string text = line.substr(line.find(' ') + 1);
      EXPECT_TRUE(text.starts_with(lines % 2 == 0 ? fmt::format("attempt {}", lines / 2 + 1)
                                                  : "step  1/10  loss 1.5000"))
          << line;
    }
    EXPECT_EQ(lines, 2 * attempt);
  }
}

TEST(RankLog, NamesAFileThatCannotBeWritten) {
  const TemporaryDirectory run_dir;
  std::ofstream(run_dir.path() / "logs") << "a file";
  try {
    RankLog(run_dir.path(), 0, 10);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("logs/rank-0.log: cannot write the log: "), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tandem
