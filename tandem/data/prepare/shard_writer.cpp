#include "tandem/data/prepare/shard_writer.h"

#include <algorithm>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/data/token_shard.h"

namespace tandem {
namespace {

template <typename T>
void put(const std::vector<T>& values, std::string& out) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
void take(std::string_view& from, std::vector<T>& values, size_t count) {
  if (from.size() / sizeof(T) < count) throw DataError("the saved state is cut off");
  values.resize(count);
  if (count > 0) std::memcpy(values.data(), from.data(), count * sizeof(T));
  from.remove_prefix(count * sizeof(T));
}

}  // namespace

void ShardWriter::append(const EncodedPart& part) {
  if (part.tokens.empty()) return;
  const bool begins = !part.documents.empty() && part.documents.front() == 0;
  if (begins && num_tokens_ > 0 && options_.separator >= 0) append(std::span(&options_.separator, 1));
  // A document's beginning goes to the shard that its first token goes to.
  size_t done = 0;
  for (const int64_t document : part.documents) {
    append(std::span(part.tokens).subspan(done, static_cast<size_t>(document) - done));
    done = static_cast<size_t>(document);
    documents_.push_back(static_cast<int64_t>(pending_.size()));
    ++num_documents_;
  }
  append(std::span(part.tokens).subspan(done));
}

void ShardWriter::append(std::span<const int32_t> tokens) {
  num_tokens_ += static_cast<int64_t>(tokens.size());
  while (!tokens.empty()) {
    const auto room = static_cast<size_t>(options_.shard_tokens) - pending_.size();
    const auto part = tokens.first(std::min(room, tokens.size()));
    pending_.insert(pending_.end(), part.begin(), part.end());
    tokens = tokens.subspan(part.size());
    if (static_cast<int64_t>(pending_.size()) == options_.shard_tokens) flush();
  }
}

void ShardWriter::flush() {
  const std::string name = fmt::format("{}-{:05}.tokens", split_, shards_.size());
  const ShardInfo info =
      write_shard(options_.directory / name, pending_, options_.vocab, documents_, options_.tokenizer);
  if (options_.ship) options_.ship(options_.directory / name);
  shards_.push_back({{"file", name},
                     {"tokens", info.num_tokens},
                     {"documents", info.num_documents},
                     {"max_token", info.max_token},
                     {"digest", info.digest}});
  pending_.clear();
  documents_.clear();
}

nlohmann::json ShardWriter::finish() {
  if (!pending_.empty()) flush();
  return shards_;
}

nlohmann::json ShardWriter::save(std::string& tokens) const {
  put(pending_, tokens);
  put(documents_, tokens);
  return {{"tokens", num_tokens_},
          {"documents", num_documents_},
          {"shards", shards_},
          {"pending_tokens", pending_.size()},
          {"pending_documents", documents_.size()}};
}

void ShardWriter::restore(const nlohmann::json& saved, std::string_view& tokens) {
  take(tokens, pending_, saved.at("pending_tokens").get<size_t>());
  take(tokens, documents_, saved.at("pending_documents").get<size_t>());
  num_tokens_ = saved.at("tokens");
  num_documents_ = saved.at("documents");
  shards_ = saved.at("shards");
}

}  // namespace tandem
