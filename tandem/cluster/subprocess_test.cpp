#include "tandem/cluster/subprocess.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem::cluster {
namespace {

TEST(Subprocess, GivesInputAndTakesBothOutputs) {
  const std::string input(1 << 20, 'x');  // more than a pipe holds
  const Ended ended = run_program({"sh", "-c", "cat; echo told >&2; exit 3"}, input);
  EXPECT_EQ(3, ended.code);
  EXPECT_EQ(input, ended.out);
  EXPECT_EQ("told\n", ended.err);
}

TEST(Subprocess, MayEndWithoutReadingItsInput) {
  EXPECT_EQ(0, run_program({"true"}, std::string(1 << 20, 'x')).code);
}

TEST(Subprocess, TellsASignalAsAShellDoes) { EXPECT_EQ(137, run_program({"sh", "-c", "kill -9 $$"}).code); }

TEST(Subprocess, WhatDoesNotExistOrEndIsAnError) {
  EXPECT_THROW(run_program({"no-such-program-here"}), ConfigError);
  EXPECT_THROW(run_program({"sleep", "60"}, "", 0.05), IoError);
}

}  // namespace
}  // namespace tandem::cluster
