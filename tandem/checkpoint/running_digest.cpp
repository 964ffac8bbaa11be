#include "tandem/checkpoint/running_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"

namespace tandem {

RunningDigest::RunningDigest() : state_(XXH3_createState()) {
  TANDEM_CHECK(state_ != nullptr);
  XXH3_128bits_reset(state_.get());
}

void RunningDigest::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void RunningDigest::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

std::string RunningDigest::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string digest_and_copy(std::span<const std::byte> src, std::span<std::byte> dst) {
  if (dst.empty()) return digest_hex(src);
  TANDEM_CHECK(dst.size() >= src.size());
  RunningDigest digest;
  for (size_t done = 0; done < src.size(); done += kDigestPiece) {
    const auto piece = src.subspan(done, std::min(kDigestPiece, src.size() - done));
    digest.add(piece);
    std::memcpy(dst.data() + done, piece.data(), piece.size());
  }
  return digest.hex();
}

}  // namespace tandem
