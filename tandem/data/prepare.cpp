#include "tandem/data/prepare.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/data/held_out.h"
#include "tandem/data/text_file.h"
#include "tandem/data/token_shard.h"
#include "tandem/text/tokenizer.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Cuts a stream of tokens into shards of one split.
class ShardWriter {
 public:
  ShardWriter(const fs::path& directory, std::string split, int64_t vocab, int64_t shard_tokens)
      : directory_(directory), split_(std::move(split)), vocab_(vocab), shard_tokens_(shard_tokens) {}

  int64_t num_tokens() const { return num_tokens_; }

  void append(std::span<const int32_t> tokens) {
    num_tokens_ += static_cast<int64_t>(tokens.size());
    while (!tokens.empty()) {
      const auto room = static_cast<size_t>(shard_tokens_) - pending_.size();
      const auto part = tokens.first(std::min(room, tokens.size()));
      pending_.insert(pending_.end(), part.begin(), part.end());
      tokens = tokens.subspan(part.size());
      if (static_cast<int64_t>(pending_.size()) == shard_tokens_) flush();
    }
  }

  nlohmann::json finish() {
    if (!pending_.empty()) flush();
    return std::move(shards_);
  }

 private:
  void flush() {
    const std::string name = fmt::format("{}-{:05}.tokens", split_, shards_.size());
    const ShardInfo info = write_shard(directory_ / name, pending_, vocab_);
    shards_.push_back({{"file", name},
                       {"tokens", info.num_tokens},
                       {"max_token", info.max_token},
                       {"digest", info.digest}});
    pending_.clear();
  }

  fs::path directory_;
  std::string split_;
  int64_t vocab_;
  int64_t shard_tokens_;
  int64_t num_tokens_ = 0;
  std::vector<int32_t> pending_;
  nlohmann::json shards_ = nlohmann::json::array();
};

std::string_view as_text(const MappedFile& file) {
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A megabyte or so at a time, to the end of a line where there is one.
std::string_view next_chunk(std::string_view text) {
  constexpr size_t kChunk = size_t{1} << 20;
  if (text.size() <= kChunk) return text;
  const size_t line_end = text.rfind('\n', kChunk - 1);
  return text.substr(0, line_end == std::string_view::npos ? kChunk : line_end + 1);
}

int64_t check_inputs(std::span<const fs::path> inputs, const fs::path& out_dir,
                     const PrepareOptions& options) {
  if (inputs.empty()) throw ConfigError("prepare: no input files: name at least one");
  if (options.shard_tokens < 1)
    throw ConfigError("shard size {}: expected at least 1 token", options.shard_tokens);
  if (!(options.eval_fraction >= 0.0 && options.eval_fraction < 1.0)) {
    throw ConfigError("eval fraction {}: expected at least 0 and below 1", options.eval_fraction);
  }
  if (is_there(out_dir)) {
    throw ConfigError("{}: already exists; remove it or name another directory", out_dir.string());
  }
  int64_t total = 0;
  for (const fs::path& input : inputs) {
    if (!is_there(input)) throw DataError("{}: no such file", input.string());
    if (!fs::is_regular_file(input)) throw DataError("{}: not a file: expected text", input.string());
    if (fs::file_size(input) == 0) throw DataError("{}: file is empty: expected text", input.string());
    total += static_cast<int64_t>(fs::file_size(input));
  }
  return total;
}

class Preparation {
 public:
  Preparation(const fs::path& directory, const PrepareOptions& options, int64_t total_bytes)
      : options_(options),
        directory_(directory),
        tokenizer_(make_tokenizer(options.tokenizer)),
        train_(directory, "train", tokenizer_->vocab_size(), options.shard_tokens),
        eval_(directory, "eval", tokenizer_->vocab_size(), options.shard_tokens) {
    if (tokenizer_->name() != "bytes")
      throw ConfigError("--tokenizer {}: this version prepares bytes only; use bytes", options.tokenizer);
    stats_.input_bytes = total_bytes;
  }

  void add(const fs::path& input) {
    const MappedFile file(input);
    check_text_start(input, file.bytes());
    if (file.bytes().size() > kCheckedAtOnce)
      check_text_piece(input, file.bytes().subspan(kCheckedAtOnce), kCheckedAtOnce);
    const std::string_view text = as_text(file);
    const size_t cut = held_out_begin(text, options_.eval_fraction);
    add_document(text.substr(0, cut), train_);
    add_document(text.substr(cut), eval_);
    ++stats_.num_files;
  }

  PrepareStats finish() {
    stats_.train_tokens = train_.num_tokens();
    stats_.eval_tokens = eval_.num_tokens();
    const nlohmann::json train = train_.finish(), eval = eval_.finish();
    stats_.num_shards = static_cast<int64_t>(train.size() + eval.size());
    const nlohmann::json index = {{"format", "tandem-tokens"},
                                  {"version", 1},
                                  {"tokenizer", options_.tokenizer},
                                  {"vocab", tokenizer_->vocab_size()},
                                  {"token_bytes", shard_token_bytes(tokenizer_->vocab_size())},
                                  {"separator", tokenizer_->separator()},
                                  {"splits", {{"train", train}, {"eval", eval}}}};
    write_atomically(directory_ / "index.json", index.dump(2) + "\n");
    return stats_;
  }

 private:
  void add_document(std::string_view text, ShardWriter& to) {
    if (text.empty()) return;
    if (to.num_tokens() > 0) to.append(std::vector<int32_t>{tokenizer_->separator()});
    std::vector<int32_t> tokens;
    while (!text.empty()) {
      const std::string_view chunk = next_chunk(text);
      tokens.clear();
      tokenizer_->encode(chunk, tokens);
      to.append(tokens);
      text.remove_prefix(chunk.size());
      done_bytes_ += static_cast<int64_t>(chunk.size());
      if (options_.progress) options_.progress(done_bytes_, stats_.input_bytes);
    }
  }

  const PrepareOptions& options_;
  fs::path directory_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ShardWriter train_, eval_;
  PrepareStats stats_;
  int64_t done_bytes_ = 0;
};

}  // namespace

PrepareStats prepare_text(std::span<const fs::path> inputs, const fs::path& out_dir,
                          const PrepareOptions& options) {
  const int64_t total_bytes = check_inputs(inputs, out_dir, options);
  fs::path target = out_dir.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "dir/" names "dir"
  const fs::path temporary = target.string() + fmt::format(".tmp-{}", ::getpid());
  try {
    if (target.has_parent_path()) fs::create_directories(target.parent_path());
    fs::create_directory(temporary);
    Preparation preparation(temporary, options, total_bytes);
    for (const fs::path& input : inputs) preparation.add(input);
    const PrepareStats stats = preparation.finish();
    sync_directory(temporary);
    fs::rename(temporary, target);
    sync_directory(target.parent_path());
    return stats;
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw IoError("{}: cannot write: {}", target.string(), error.code().message());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
}

}  // namespace tandem
