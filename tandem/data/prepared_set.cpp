// open_prepared: the shards of one split, as index.json lists them, read as one row of tokens.
#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/json_text.h"
#include "tandem/data/token_windows.h"
#include "tandem/store/cache/read_ahead.h"

namespace tandem {
namespace {

constexpr const char* kIndex = "index.json";
constexpr int64_t kMostIndexBytes = int64_t{256} << 20;  // of millions of shards

class PreparedSet final : public TokenSource {
 public:
  PreparedSet(int64_t vocab, std::vector<TokenShard> shards) : vocab_(vocab), shards_(std::move(shards)) {
    for (const TokenShard& shard : shards_) ends_.push_back(num_tokens() + shard.info().num_tokens);
  }

  int64_t num_tokens() const override { return ends_.empty() ? 0 : ends_.back(); }
  int64_t vocab() const override { return vocab_; }

  void read(int64_t first, int64_t count, int32_t* out) const override {
    auto shard = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
    for (; count > 0; ++shard) {
      const int64_t begin = ends_[shard] - shards_[shard].info().num_tokens;
      const int64_t here = std::min(count, ends_[shard] - first);
      shards_[shard].read(first - begin, here, out);
      first += here;
      count -= here;
      out += here;
    }
  }

  void documents(int64_t first, int64_t count, std::vector<int64_t>& out) const override {
    auto shard = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
    for (; count > 0; ++shard) {
      const int64_t begin = ends_[shard] - shards_[shard].info().num_tokens;
      const int64_t here = std::min(count, ends_[shard] - first);
      shards_[shard].documents(first - begin, here, begin, out);
      first += here;
      count -= here;
    }
  }

  void expect(int64_t first, int64_t count) const override {
    auto shard = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
    for (; count > 0 && shard < shards_.size(); ++shard) {
      const int64_t begin = ends_[shard] - shards_[shard].info().num_tokens;
      const int64_t here = std::min(count, ends_[shard] - first);
      shards_[shard].expect(first - begin, here);
      first += here;
      count -= here;
    }
  }

  // Sets of version 1 do not.
  bool knows_documents() const override {
    return std::any_of(shards_.begin(), shards_.end(),
                       [](const TokenShard& shard) { return shard.info().num_documents > 0; });
  }

 private:
  int64_t vocab_;
  std::vector<TokenShard> shards_;
  std::vector<int64_t> ends_;  // for each shard, the position after its last token
};

// A far one takes a while to answer: many are asked at the same time.
std::vector<TokenShard> open_far(const StoreRef& store, const std::vector<std::string>& names) {
  constexpr size_t kAtOnce = 16;
  const std::shared_ptr<ReadAhead> through = open_cached(store);
  std::vector<std::optional<TokenShard>> opened(names.size());
  std::vector<std::exception_ptr> failures(names.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < names.size(); i = next++) {
      try {
        opened[i].emplace(through->open(names[i]));
      } catch (const MissingObject&) {
        failures[i] = std::make_exception_ptr(
            DataError("{}: shard is missing; run tandem prepare again", store->description(names[i])));
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < std::min(kAtOnce, names.size()); ++i) threads.emplace_back(work);
  }
  std::vector<TokenShard> shards;
  for (size_t i = 0; i < names.size(); ++i) {
    if (failures[i]) std::rethrow_exception(failures[i]);
    shards.push_back(std::move(*opened[i]));
  }
  return shards;
}

std::vector<TokenShard> open_shards(const StoreRef& store, const nlohmann::json& entries) {
  std::vector<std::string> names;
  for (const nlohmann::json& entry : entries) names.push_back(entry.at("file"));
  if (store->is_far()) return open_far(store, names);
  std::vector<TokenShard> shards;
  for (const std::string& name : names) shards.emplace_back(*store, name);
  return shards;
}

[[noreturn]] void refuse_tokenizer(const std::string& set, const nlohmann::json& index,
                                   const ExpectedTokenizer& expected) {
  throw DataError(
      "{}: was prepared with tokenizer {} ({} tokens), but data.tokenizer is {}; set data.tokenizer to {}, "
      "or "
      "prepare it again",
      set, index.at("tokenizer").get<std::string>(), index.at("vocab").get<int64_t>(), expected.name,
      index.value("tokenizer_digest", "").empty() ? std::string("bytes") : set);
}

}  // namespace

std::unique_ptr<TokenSource> open_prepared(const StoreRef& store, Split split, bool verify_digests,
                                           const ExpectedTokenizer* expected) {
  const std::string origin = store->description(kIndex);
  if (!store->exists(kIndex)) {
    throw DataError("{}: not a prepared set: expected an index.json, as tandem prepare writes it",
                    store->description(""));
  }
  const char* const split_name = split == Split::Train ? "train" : "eval";
  try {
    const std::string text = read_text(*store->open(kIndex), kMostIndexBytes);
    check_json_depth(text, origin);
    const nlohmann::json index = nlohmann::json::parse(text);
    if (index.at("format") != "tandem-tokens" || (index.at("version") != 1 && index.at("version") != 2)) {
      throw DataError("{}: expected format tandem-tokens version 1 or 2; run tandem prepare again", origin);
    }
    const int64_t vocab = index.at("vocab");
    const std::string tokenizer = index.value("tokenizer_digest", "");
    if (expected && tokenizer != expected->digest) refuse_tokenizer(store->description(""), index, *expected);
    const nlohmann::json& entries = index.at("splits").at(split_name);
    std::vector<TokenShard> shards = open_shards(store, entries);
    for (size_t i = 0; i < shards.size(); ++i) {
      const nlohmann::json& entry = entries[i];
      const std::string file = entry.at("file");
      const TokenShard& shard = shards[i];
      const ShardInfo listed{.token_bytes = index.at("token_bytes"),
                             .vocab = vocab,
                             .num_tokens = entry.at("tokens"),
                             .max_token = entry.at("max_token"),
                             .digest = entry.at("digest"),
                             .num_documents = entry.value("documents", int64_t{0}),
                             .tokenizer = tokenizer};
      if (shard.info() != listed) {
        throw DataError("{}: header does not agree with {}; run tandem prepare again",
                        store->description(file), origin);
      }
      if (verify_digests) shard.verify();
    }
    if (shards.empty()) {
      throw DataError("{}: its {} split is empty; prepare it with another eval fraction",
                      store->description(""), split_name);
    }
    return std::make_unique<PreparedSet>(vocab, std::move(shards));
  } catch (const nlohmann::json::exception& error) {
    throw DataError("{}: damaged index: {}; run tandem prepare again", origin, error.what());
  }
}

}  // namespace tandem
