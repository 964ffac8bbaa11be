// digest_hex of bytes that arrive in pieces, so that a digest can be taken while they are in cache for
// another reason (being copied or read). The pieces' sizes do not matter to the result.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct XXH3_state_s;

namespace tandem {

inline constexpr size_t kDigestPiece = size_t{256} << 10;  // fits the second-level cache

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

// One pass over `src`: copies it to `dst` (unless empty) and returns the digest of `src` itself.
std::string digest_and_copy(std::span<const std::byte> src, std::span<std::byte> dst);

}  // namespace tandem
