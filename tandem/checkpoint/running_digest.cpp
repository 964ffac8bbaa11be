#include "tandem/checkpoint/running_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

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

BlockDigests digest_and_copy(std::span<const std::byte> src, std::span<std::byte> dst, bool whole) {
  TANDEM_CHECK(dst.empty() || dst.size() >= src.size());
  constexpr auto kBlock = static_cast<size_t>(kDigestBlock);
  whole = whole && src.size() > kBlock;  // otherwise it is the only block's
  BlockDigests result;
  RunningDigest all;
  size_t begin = 0;
  do {
    const size_t end = std::min(begin + kBlock, src.size());
    RunningDigest block;
    for (size_t done = begin; done < end; done += kDigestPiece) {
      const auto piece = src.subspan(done, std::min(kDigestPiece, end - done));
      block.add(piece);
      if (whole) all.add(piece);
      if (!dst.empty()) std::memcpy(dst.data() + done, piece.data(), piece.size());
    }
    result.blocks.push_back(block.hex());
    begin = end;
  } while (begin < src.size());
  result.whole = whole ? all.hex() : result.blocks.size() == 1 ? result.blocks[0] : std::string();
  return result;
}

}  // namespace tandem
