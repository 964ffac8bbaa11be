// 128-bit digests (XXH3) of bytes in memory: equal digests mean equal bits.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tandem {

std::string digest_hex(std::span<const std::byte> bytes);  // 32 hex digits

}  // namespace tandem
