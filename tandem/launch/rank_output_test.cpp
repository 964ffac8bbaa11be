#include "tandem/launch/rank_output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

class RankOutputTest : public testing::Test {
 protected:
  RankOutputTest() {
    EXPECT_EQ(0, ::pipe(out_));
    EXPECT_EQ(0, ::pipe(err_));
    terminal_ = Terminal(out_[1], err_[1]);
  }
  ~RankOutputTest() override {
    for (int fd : {out_[0], out_[1], err_[0], err_[1]}) ::close(fd);
  }
  // What has been written to the terminal's stdout or stderr; something must have been.
  std::string shown(int (&pipe)[2]) {
    char buffer[4096];
    const ssize_t size = ::read(pipe[0], buffer, sizeof(buffer));
    return {buffer, static_cast<size_t>(std::max<ssize_t>(size, 0))};
  }

  TemporaryDirectory directory_;
  int out_[2], err_[2];
  Terminal terminal_;
};

TEST_F(RankOutputTest, PrefixedLinesAreWholeAndAsItIsPassesBytesOn) {
  RankOutput output(3, directory_.path() / "log", terminal_, Show::AsItIs, Show::Prefixed);
  output.receive(OutputStream::Err, "first\nsec");
  EXPECT_EQ("[rank 3] first\n", shown(err_));
  output.receive(OutputStream::Err, "ond\n");
  EXPECT_EQ("[rank 3] second\n", shown(err_));
  output.receive(OutputStream::Out, "\rstep 1");
  EXPECT_EQ("\rstep 1", shown(out_));
}

TEST_F(RankOutputTest, TheLogHoldsBothStreamsAndOneLineOfAProgressBar) {
  RankOutput output(0, directory_.path() / "log", terminal_, Show::Nothing, Show::Nothing);
  output.log_line("--- start");
  output.receive(OutputStream::Out, "\rstep 1\rstep 2\n");
  output.receive(OutputStream::Err, "unfinished");
  output.finish(OutputStream::Err);
  EXPECT_EQ("--- start\nstep 2\nunfinished\n", read_text(directory_.path() / "log"));
}

TEST_F(RankOutputTest, KeepsTheLastErrorLinesElseTheLastOfStdout) {
  RankOutput output(0, directory_.path() / "log", terminal_, Show::Nothing, Show::Nothing);
  output.receive(OutputStream::Out, "all is well\n");
  EXPECT_EQ("all is well", output.last_lines().back());
  for (int i = 0; i < 100; ++i) output.receive(OutputStream::Err, "error " + std::to_string(i) + "\n\n");
  EXPECT_EQ("error 99", output.last_lines().back());
  EXPECT_LT(output.last_lines().size(), 20u);
}

TEST_F(RankOutputTest, KnowsHowTheLastLinesWereShown) {
  RankOutput output(0, directory_.path() / "log", terminal_, Show::Prefixed, Show::Nothing);
  output.receive(OutputStream::Out, "all is well\n");
  EXPECT_EQ(Show::Prefixed, output.show_of_last_lines());
  output.receive(OutputStream::Err, "not at all\n");
  EXPECT_EQ(Show::Nothing, output.show_of_last_lines());
}

TEST_F(RankOutputTest, AMessageOfTheLauncherStartsOnALineOfItsOwn) {
  terminal_.write(OutputStream::Err, "\rstep 1");
  shown(err_);
  terminal_.message("stopping");
  EXPECT_EQ("\ntandem launch: stopping\n", shown(err_));
  terminal_.message("stopped");
  EXPECT_EQ("tandem launch: stopped\n", shown(err_));
}

TEST_F(RankOutputTest, ALogThatCannotBeWrittenIsNamed) {
  try {
    RankOutput output(5, directory_.path() / "no" / "log", terminal_, Show::Nothing, Show::Nothing);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string::npos, std::string(error.what()).find("no/log: cannot write the log of rank 5"));
  }
}

}  // namespace
}  // namespace tandem
