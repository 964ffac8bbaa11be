// Text files to a directory of token shards (token_shard.h) with an index.json that lists them by split. The
// directory appears whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "tandem/data/held_out.h"

namespace tandem {

struct PrepareOptions {
  std::string tokenizer = "bytes";
  int64_t shard_tokens = int64_t{1} << 24;
  double eval_fraction =
      kHeldOutFraction;  // the end of each file, from a line's beginning where there is one; 0 = none
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = {};  // called about once a megabyte
};

struct PrepareStats {
  int64_t num_files = 0;
  int64_t input_bytes = 0;
  int64_t train_tokens = 0;
  int64_t eval_tokens = 0;
  int64_t num_shards = 0;
};

// Several files are several documents: the tokenizer's separator stands between them.
PrepareStats prepare_text(std::span<const std::filesystem::path> inputs, const std::filesystem::path& out_dir,
                          const PrepareOptions& options);

}  // namespace tandem
