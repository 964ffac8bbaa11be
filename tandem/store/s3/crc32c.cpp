#include "tandem/store/s3/crc32c.h"

#include <array>
#include <cstring>

#ifdef __x86_64__
#include <nmmintrin.h>
#endif

namespace tandem::s3 {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = value;
  }
  return table;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) uint32_t by_instruction(std::span<const std::byte> bytes) {
  uint64_t crc = 0xffffffff;
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    crc = _mm_crc32_u64(crc, word);
    bytes = bytes.subspan(sizeof(word));
  }
  auto rest = static_cast<uint32_t>(crc);
  for (const std::byte byte : bytes) rest = _mm_crc32_u8(rest, static_cast<unsigned char>(byte));
  return ~rest;
}
#endif

}  // namespace

uint32_t crc32c_by_table(std::span<const std::byte> bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_table();
  uint32_t crc = 0xffffffff;
  for (const std::byte byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> bytes) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("sse4.2")) return by_instruction(bytes);
#endif
  return crc32c_by_table(bytes);
}

std::string crc32c_base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const uint64_t padded = static_cast<uint64_t>(crc32c(bytes)) << 4;  // 36 bits: six digits
  std::string text;
  for (int shift = 30; shift >= 0; shift -= 6) text += kDigits[padded >> shift & 63];
  return text + "==";
}

}  // namespace tandem::s3
