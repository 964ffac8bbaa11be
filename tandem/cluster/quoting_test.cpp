#include "tandem/cluster/quoting.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/cluster/subprocess.h"

namespace tandem::cluster {
namespace {

TEST(Quoting, AShellReadsEveryWordAsItIs) {
  std::string all;
  for (int c = 1; c < 256; ++c) all += static_cast<char>(c);
  for (const std::string& text :
       {std::string("plain"), std::string(), std::string("it's \"$(touch x)\" `y` \\"),
        std::string("two\nlines\n"), std::string("--flag"), std::string("~"), all}) {
    const Ended ended = run_program({"sh", "-c", "printf %s " + shell_word(text, "--set") + "; printf ."});
    EXPECT_EQ(text + ".", ended.out);
    EXPECT_EQ("", ended.err);
  }
  EXPECT_EQ("a/b-c.yaml", shell_word("a/b-c.yaml", "--set"));
  EXPECT_THROW(shell_word(std::string_view("a\0b", 3), "--set"), ConfigError);
}

TEST(Quoting, AnSbatchValueStaysOnItsLine) {
  EXPECT_EQ("12:00:00", sbatch_value("12:00:00", "--time"));
  EXPECT_EQ(R"x("a \"b\" \\ $(c)")x", sbatch_value("a \"b\" \\ $(c)", "--comment"));
  EXPECT_THROW(sbatch_value("a\n#SBATCH --uid=0", "--comment"), ConfigError);
}

TEST(Quoting, ACommentStaysOnItsLine) { EXPECT_EQ("a\\nrm", comment_text("a\nrm")); }

}  // namespace
}  // namespace tandem::cluster
