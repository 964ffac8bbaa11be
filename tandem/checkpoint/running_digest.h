// digest_hex of bytes that arrive in pieces, so that a digest can be taken while they are in cache for
// another reason (being copied or read). The pieces' sizes do not matter to the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct XXH3_state_s;

namespace tandem {

inline constexpr size_t kDigestPiece = size_t{256} << 10;  // fits the second-level cache

// Each so many bytes of a shard have a digest of their own, so that a reader who needs a part of it can
// check what it reads without reading the rest.
inline constexpr int64_t kDigestBlock = int64_t{1} << 20;

class RunningDigest {
 public:
  RunningDigest();
  void add(std::span<const std::byte> bytes);
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

// The digests of each kDigestBlock bytes of what is added; one even where there are no bytes.
class BlockDigests {
 public:
  void add(std::span<const std::byte> bytes);
  std::vector<std::string> finish();

 private:
  std::vector<std::string> done_;
  RunningDigest block_;
  int64_t filled_ = 0;  // bytes of block_
};

// One digest of the whole from those of its blocks: the only one's own, or the digest of all their digits.
std::string combine_digests(std::span<const std::string> blocks);

// One pass over `src`: copies it to `dst` (unless empty) and takes the digests of the blocks of `src` itself.
std::vector<std::string> digest_and_copy(std::span<const std::byte> src, std::span<std::byte> dst);

}  // namespace tandem
