// For tests of messages: the error that a config gives, or "" when it is accepted.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/config/load.h"

namespace tandem {

inline std::string rejection(const std::string& yaml, const std::vector<Override>& overrides = {}) {
  try {
    parse_config(yaml, "run.yaml", overrides);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace tandem
