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
// check what it reads without reading the rest. Digests of whole tensors that are compared between
// checkpoints are of blocks of this size, which is that of a large checkpoint.
inline constexpr int64_t kDigestBlock = int64_t{1} << 20;
inline constexpr int64_t kLeastDigestBlock = int64_t{16} << 10;

// Of a checkpoint of so many bytes: where ranks cut a tensor otherwise than those who wrote it, both sides of
// a cut read the block, and that is to be little beside the tensor; but a digest in a manifest takes memory
// while it is saved, and that is to be little beside the checkpoint. So it grows as the root of the bytes.
int64_t digest_block_of(int64_t checkpoint_bytes);

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

// The digests of each `block` bytes of what is added; one even where there are no bytes.
class BlockDigests {
 public:
  explicit BlockDigests(int64_t block) : size_(block) {}
  void add(std::span<const std::byte> bytes);
  std::vector<std::string> finish();

 private:
  int64_t size_;
  std::vector<std::string> done_;
  RunningDigest block_;
  int64_t filled_ = 0;  // bytes of block_
};

// One digest of the whole from those of its blocks: the only one's own, or the digest of all their digits.
std::string combine_digests(std::span<const std::string> blocks);

// One pass over `src`: copies it to `dst` (unless empty) and takes the digests of the blocks of `src` itself.
std::vector<std::string> digest_and_copy(std::span<const std::byte> src, std::span<std::byte> dst,
                                         int64_t block = kDigestBlock);

}  // namespace tandem
