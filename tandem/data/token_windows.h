// Windows over one long row of tokens: sample i holds tokens [i T, i T + T] as T inputs and T targets, so
// that every token but the first is a target once an epoch. The last window is padded; padding has no target.
// Where documents are separate, the first token of each is nobody's target: no token that could see it coming
// is left. What stands between documents, which belongs to the one before, is a target as any other.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/token_shard.h"

namespace tandem {

// A text file, a byte a token, or the shards that prepare.h wrote; read through mappings, from any thread.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t num_tokens() const = 0;
  virtual int64_t vocab() const = 0;
  virtual void read(int64_t first, int64_t count, int32_t* out) const = 0;
  // Appends where documents begin in [first, first + count), rising. One document where nobody knows better.
  virtual void documents(int64_t /*first*/, int64_t /*count*/, std::vector<int64_t>& /*out*/) const {}
  virtual bool knows_documents() const { return false; }
  virtual void expect(int64_t /*first*/, int64_t /*count*/) const {}  // will be read soon
};

// What a set has to have been made with.
struct ExpectedTokenizer {
  std::string name;    // as the config says
  std::string digest;  // empty: bytes
};

std::unique_ptr<TokenSource> open_text(const std::filesystem::path& file);
// Throws DataError where the set was made with another tokenizer than the one that is expected, if any is.
std::unique_ptr<TokenSource> open_prepared(const StoreRef& store, Split split, bool verify_digests,
                                           const ExpectedTokenizer* expected = nullptr);

class TokenWindows final : public Dataset {
 public:
  // Throws DataError, beginning with `name`, if the tokens do not fill one window.
  TokenWindows(std::string_view name, std::unique_ptr<TokenSource> source, int64_t context,
               bool separate_documents = false);

  SampleSpec spec() const override;
  int64_t num_samples() const override { return num_samples_; }
  void fill(int64_t index, const SampleBuffers& out) const override;
  int64_t num_valid_targets(int64_t index) const override;
  bool is_in_order() const override { return true; }
  bool knows_documents() const override { return source_->knows_documents(); }
  void expect(int64_t index) const override { source_->expect(index * context_, num_used(index) + 1); }

 private:
  int64_t num_used(int64_t index) const;  // tokens of a window that have one after them
  // Where documents begin in a window and right behind it, counted from its first token.
  std::vector<int64_t> documents_of(int64_t index) const;
  void separate(int64_t index, const SampleBuffers& out) const;

  std::unique_ptr<TokenSource> source_;
  int64_t context_;
  bool separate_documents_;
  int64_t num_samples_;
};

}  // namespace tandem
