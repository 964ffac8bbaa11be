// Cuts the tokens of one split into shards.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/data/prepare/encode_block.h"

namespace tandem {

struct ShardOptions {
  std::filesystem::path directory;
  int64_t vocab = 0;
  int64_t shard_tokens = 0;
  int32_t separator = -1;                                        // between documents; -1: nothing
  std::string tokenizer;                                         // digest
  std::function<void(const std::filesystem::path& shard)> ship;  // takes each full shard elsewhere, if given
};

class ShardWriter {
 public:
  ShardWriter(const ShardOptions& options, std::string split) : options_(options), split_(std::move(split)) {}

  void append(const EncodedPart& part);
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_documents() const { return num_documents_; }
  nlohmann::json finish();  // writes the rest; the shards as an index lists them

  // All that it knows but the shards on disk: numbers in JSON, and what is in no shard yet behind it.
  nlohmann::json save(std::string& tokens) const;
  void restore(const nlohmann::json& saved, std::string_view& tokens);  // takes its own from the front

 private:
  void append(std::span<const int32_t> tokens);
  void flush();

  const ShardOptions& options_;
  const std::string split_;
  int64_t num_tokens_ = 0, num_documents_ = 0;
  std::vector<int32_t> pending_;
  std::vector<int64_t> documents_;  // that begin in what is pending
  nlohmann::json shards_ = nlohmann::json::array();
};

}  // namespace tandem
