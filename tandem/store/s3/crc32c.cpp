#include "tandem/store/s3/crc32c.h"

#include <array>
#include <cstring>
#include <vector>

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
// The instruction's answer takes three cycles and one may begin in each: three lanes side by side, whose
// remainders are then put together as if the bytes behind each were zeros.
constexpr size_t kLane = 2048;

uint64_t word_at(const std::byte* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

__attribute__((target("sse4.2"))) uint32_t one_lane(uint32_t crc, std::span<const std::byte> bytes) {
  uint64_t wide = crc;
  while (bytes.size() >= sizeof(uint64_t)) {
    wide = _mm_crc32_u64(wide, word_at(bytes.data()));
    bytes = bytes.subspan(sizeof(uint64_t));
  }
  auto rest = static_cast<uint32_t>(wide);
  for (const std::byte byte : bytes) rest = _mm_crc32_u8(rest, static_cast<unsigned char>(byte));
  return rest;
}

// What a remainder becomes behind a lane of zeros: that is linear, so a table for each of its bytes is
// enough.
class BehindLane {
 public:
  BehindLane() {
    const std::vector<std::byte> zeros(kLane);
    for (uint32_t bit = 0; bit < 32; ++bit) {
      const uint32_t moved = one_lane(uint32_t{1} << bit, zeros);
      for (uint32_t value = 0; value < 256; ++value) {
        if ((value >> (bit % 8) & 1) != 0) table_[bit / 8][value] ^= moved;
      }
    }
  }
  uint32_t operator()(uint32_t crc) const {
    return table_[0][crc & 0xff] ^ table_[1][crc >> 8 & 0xff] ^ table_[2][crc >> 16 & 0xff] ^
           table_[3][crc >> 24];
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> table_{};
};

__attribute__((target("sse4.2"))) uint32_t by_instruction(std::span<const std::byte> bytes, uint32_t before) {
  static const BehindLane behind_lane;
  uint32_t crc = ~before;
  for (; bytes.size() >= 3 * kLane; bytes = bytes.subspan(3 * kLane)) {
    const std::byte* at = bytes.data();
    uint64_t first = crc, second = 0, third = 0;
    for (const std::byte* end = at + kLane; at != end; at += sizeof(uint64_t)) {
      first = _mm_crc32_u64(first, word_at(at));
      second = _mm_crc32_u64(second, word_at(at + kLane));
      third = _mm_crc32_u64(third, word_at(at + 2 * kLane));
    }
    crc = behind_lane(static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
    crc = behind_lane(crc) ^ static_cast<uint32_t>(third);
  }
  return ~one_lane(crc, bytes);
}
#endif

}  // namespace

uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t before) {
  static constexpr std::array<uint32_t, 256> kTable = make_table();
  uint32_t crc = ~before;
  for (const std::byte byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint32_t>(byte)) & 0xff];
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("sse4.2")) return by_instruction(bytes, before);
#endif
  return crc32c_by_table(bytes, before);
}

std::string crc32c_base64(uint32_t crc) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const uint64_t padded = static_cast<uint64_t>(crc) << 4;  // 36 bits: six digits
  std::string text;
  for (int shift = 30; shift >= 0; shift -= 6) text += kDigits[padded >> shift & 63];
  return text + "==";
}

}  // namespace tandem::s3
