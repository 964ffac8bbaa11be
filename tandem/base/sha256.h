// SHA-256 (FIPS 180-4) and HMAC (RFC 2104) with it, for proofs that two sides know the same secret. For
// whether bits are equal, digest.h is ten times as fast.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace tandem {

using Sha256 = std::array<unsigned char, 32>;

Sha256 sha256(std::string_view bytes);
Sha256 hmac_sha256(std::string_view key, std::string_view bytes);

inline std::string_view as_text(const Sha256& hash) {
  return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

// In a time that does not tell where they differ.
bool equal_secretly(std::string_view a, std::string_view b);

}  // namespace tandem
