#include "tandem/checkpoint/running_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {

int64_t digest_block_of(int64_t checkpoint_bytes) {
  constexpr double kFactor = 8;
  const double most = kFactor * std::sqrt(static_cast<double>(checkpoint_bytes));
  int64_t block = kDigestBlock;
  while (checkpoint_bytes > 0 && block > kLeastDigestBlock && static_cast<double>(block) > most) block /= 2;
  return block;
}

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

void BlockDigests::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (filled_ == size_) {
      done_.push_back(block_.hex());
      block_ = RunningDigest();
      filled_ = 0;
    }
    const auto piece = bytes.first(std::min(bytes.size(), static_cast<size_t>(size_ - filled_)));
    block_.add(piece);
    filled_ += static_cast<int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
  }
}

std::vector<std::string> BlockDigests::finish() {
  done_.push_back(block_.hex());
  return std::move(done_);
}

std::string combine_digests(std::span<const std::string> blocks) {
  if (blocks.size() == 1) return blocks[0];
  RunningDigest digest;
  for (const std::string& block : blocks) digest.add(std::as_bytes(std::span(block)));
  return digest.hex();
}

std::vector<std::string> digest_and_copy(std::span<const std::byte> src, std::span<std::byte> dst,
                                         int64_t block) {
  TANDEM_CHECK(dst.empty() || dst.size() >= src.size());
  BlockDigests digests(block);
  for (size_t done = 0; done < src.size(); done += kDigestPiece) {
    const auto piece = src.subspan(done, std::min(kDigestPiece, src.size() - done));
    digests.add(piece);
    if (!dst.empty()) std::memcpy(dst.data() + done, piece.data(), piece.size());
  }
  return digests.finish();
}

}  // namespace tandem
