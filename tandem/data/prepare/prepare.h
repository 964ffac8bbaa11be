// Text and JSON Lines to a directory of token shards (token_shard.h) with an index.json that lists them by
// split, and a copy of the tokenizer. The directory appears whole or not at all. What a killed run leaves is
// DIR.partial: the next one with the same inputs and options goes on from there, and ends with the same bytes
// as one that was never killed, on any number of threads.
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
  // Of a text that is one document its end, from a line's beginning where there is one; else of documents,
  // evenly spread. 0 = none.
  double eval_fraction = kHeldOutFraction;
  std::string field = "text";  // JSON Lines: where the text is; a.b is b in a
  std::string split_on = {};   // text: what stands between documents; empty: a file is one
  bool separate = true;        // the tokenizer's end-of-text token stands between documents
  int threads = 0;             // 0 = all cores
  double save_every_s = 10.0;  // how often what a killed run goes on from is written
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = {};  // of the files on disk
  std::function<void(const std::string& message)> tell = {};                   // what a user should know
};

struct PrepareStats {
  int64_t num_files = 0;
  int64_t num_documents = 0;
  int64_t input_bytes = 0;
  int64_t train_tokens = 0;
  int64_t eval_tokens = 0;
  int64_t num_shards = 0;
  int64_t num_replaced = 0;  // U+FFFD for what was no UTF-8
};

// `out` is a directory, or s3://BUCKET/PREFIX: then each shard goes there when it is full, the index last,
// and what a killed run goes on from is in the machine's cache directory. `inputs` are files, directories and
// patterns (input_files.h). Documents are tokenized whole, with the tokens that the tokenizer's template puts
// around a text, and the separator between them.
PrepareStats prepare_text(std::span<const std::string> inputs, const std::filesystem::path& out,
                          const PrepareOptions& options);

}  // namespace tandem
