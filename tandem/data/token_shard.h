// A token shard: one object of a store with a 128-byte little-endian header, the tokens and where documents
// begin, to be mapped.
//
//   0 magic "TNDMTOKS"   8 u32 version   12 u32 bytes a token (2 or 4)   16 u64 vocabulary
//   24 u64 number of tokens   32 u64 largest token   40 digest of all behind the header, 32 hex digits
//   72 u64 number of documents that begin in it   80 digest of the tokenizer, 32 hex digits; zeros for bytes
//   112 zeros
//   128 the tokens, zeros up to a multiple of 8, the first token of each of those documents as a u64
//
// Version 1 ends with the tokens: from 72 on its header is zeros, and where documents begin is not known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tandem/store/store.h"

namespace tandem {

class CachedObject;

struct ShardInfo {
  int64_t token_bytes = 2;
  int64_t vocab = 0;
  int64_t num_tokens = 0;
  int64_t max_token = 0;
  std::string digest = {};
  int64_t num_documents = 0;   // that begin in it
  std::string tokenizer = {};  // digest of its description; empty: bytes, or not known
  bool operator==(const ShardInfo&) const = default;
};

constexpr int64_t shard_token_bytes(int64_t vocab) { return vocab <= 65536 ? 2 : 4; }

// Writes and syncs the file; what makes a set of shards appear whole is prepare.h. `documents` are where they
// begin, rising; `tokenizer` is its digest.
ShardInfo write_shard(const std::filesystem::path& path, std::span<const int32_t> tokens, int64_t vocab,
                      std::span<const int64_t> documents = {}, std::string_view tokenizer = {});

class TokenShard {
 public:
  // Throws DataError naming the object if it is absent, is no shard, or is not as long as its header says.
  TokenShard(const Store& store, const std::string& name);
  explicit TokenShard(const std::filesystem::path& path);
  explicit TokenShard(std::unique_ptr<CachedObject> far);  // is read piece by piece
  ~TokenShard();
  TokenShard(TokenShard&& other) noexcept;

  const ShardInfo& info() const { return info_; }
  void verify() const;  // reads all tokens; throws DataError if the digest differs

  // Copies tokens [first, first + count); throws DataError on a token above the header's largest.
  void read(int64_t first, int64_t count, int32_t* out) const;

  // Appends `base` + the beginnings of documents in [first, first + count); throws DataError where the table
  // of them is damaged.
  void documents(int64_t first, int64_t count, int64_t base, std::vector<int64_t>& out) const;

  void expect(int64_t first, int64_t count) const;  // will be read soon

 private:
  struct Far;
  void read_header(std::span<const std::byte> header, int64_t bytes);
  // Bytes behind the header: where they are mapped, or in memory that the calling thread has until it asks
  // again.
  std::span<const std::byte> payload(int64_t offset, int64_t bytes) const;
  int64_t payload_bytes() const;
  int64_t document(int64_t number) const;

  std::string origin_;
  std::unique_ptr<ObjectBytes> object_;  // mapped, or
  std::unique_ptr<Far> far_;
  ShardInfo info_;
};

}  // namespace tandem
