// Other programs, run to their end without a shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::cluster {

struct Ended {
  int code = 0;  // 128 + signal where a signal ended it
  std::string out, err;
};

// Gives it `input` and takes all that it prints. Throws ConfigError where there is no such program, and
// IoError after `timeout_s`, when it was killed.
Ended run_program(const std::vector<std::string>& words, std::string_view input = "", double timeout_s = 60);

}  // namespace tandem::cluster
