// The smallest run of a language model, for tests of what is done with any.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "tandem/config/load.h"

namespace tandem {

// `sections`: all but the model.
inline Config tiny_config(std::string_view sections, int64_t layers = 1) {
  return parse_config(fmt::format("threads: 1\n"
                                  "model: {{layers: {}, width: 16, heads: 2, context: 16, vocab: 256}}\n{}\n",
                                  layers, sections),
                      "config")
      .config;
}

}  // namespace tandem
