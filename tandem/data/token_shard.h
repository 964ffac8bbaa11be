// A token shard: one object of a store with a 128-byte little-endian header and the tokens, to be mapped.
//
//   0 magic "TNDMTOKS"   8 u32 version   12 u32 bytes a token (2 or 4)   16 u64 vocabulary
//   24 u64 number of tokens   32 u64 largest token   40 digest of the tokens, 32 hex digits   72 zeros
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tandem/store/store.h"

namespace tandem {

struct ShardInfo {
  int64_t token_bytes = 2;
  int64_t vocab = 0;
  int64_t num_tokens = 0;
  int64_t max_token = 0;
  std::string digest = {};
  bool operator==(const ShardInfo&) const = default;
};

constexpr int64_t shard_token_bytes(int64_t vocab) { return vocab <= 65536 ? 2 : 4; }

// Writes and syncs the file; what makes a set of shards appear whole is prepare.h.
ShardInfo write_shard(const std::filesystem::path& path, std::span<const int32_t> tokens, int64_t vocab);

class TokenShard {
 public:
  // Throws DataError naming the object if it is absent, is no shard, or is not as long as its header says.
  TokenShard(const Store& store, const std::string& name);
  explicit TokenShard(const std::filesystem::path& path);

  const ShardInfo& info() const { return info_; }
  void verify() const;  // reads all tokens; throws DataError if the digest differs

  // Copies tokens [first, first + count); throws DataError on a token above the header's largest.
  void read(int64_t first, int64_t count, int32_t* out) const;

 private:
  std::span<const std::byte> payload() const;

  std::string origin_;
  std::unique_ptr<ObjectBytes> object_;
  ShardInfo info_;
};

}  // namespace tandem
