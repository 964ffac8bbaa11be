#include "tandem/metrics/progress.h"

#include <gtest/gtest.h>

#include <memory>

namespace tandem {
namespace {

StepRecord at_step(int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 1.5f;
  record.lr = 1e-3f;
  record.per_s = 12345;
  record.mfu = 0.655;
  record.rss_bytes = int64_t{3} << 29;
  record.step_ms = 100;
  return record;
}

// What `use` prints on a Progress with these options.
template <typename Use>
std::string printed(Progress::Options options, Use&& use) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  options.out = file.get();
  {
    Progress progress(30, options);
    use(progress);
  }
  std::string text(static_cast<size_t>(std::ftell(file.get())), '\0');
  std::rewind(file.get());
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file.get()), text.size());
  return text;
}

TEST(Progress, LineShowsEverythingWhereThereIsRoom) {
  EXPECT_EQ(progress_line(at_step(15), 30, 75, 200),
            "step 15/30  [##########..........]  loss 1.5000  lr 1.00e-03  12.3k tok/s  MFU 65.5%  1.5 GiB  "
            "1m 15s left");
}

TEST(Progress, LineNeverExceedsTheWidthAndKeepsStepAndLossLongest) {
  for (int width = 0; width < 130; ++width) {
    EXPECT_LE(progress_line(at_step(7), 30, 75, width).size(), static_cast<size_t>(width));
  }
  EXPECT_EQ(progress_line(at_step(7), 30, 75, 30), "step  7/30  loss 1.5000");
}

TEST(Progress, OffATerminalPrintsPlainLinesEveryFewStepsAndTheLast) {
  const std::string text =
      printed({.terminal = false, .every_s = 1e9, .every_steps = 10}, [](Progress& progress) {
        for (int64_t step = 1; step <= 30; ++step) progress.update(at_step(step));
      });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;  // 1, 11, 21 and the last
  EXPECT_NE(text.find("step 30/30"), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Progress, OnATerminalRewritesOneLineAndPutsMessagesAboveIt) {
  const std::string text = printed({.terminal = true}, [](Progress& progress) {
    progress.update(at_step(1));
    progress.message("checkpoint saved");
    progress.update(at_step(30));
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;  // the message's, and the one at the end
  EXPECT_NE(text.find("\r\x1b[Kcheckpoint saved\n"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\x1b[K\n"));
}

}  // namespace
}  // namespace tandem
