#include "tandem/base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

namespace tandem {
namespace {

constexpr size_t kBlockBytes = 64;

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<uint32_t, 8>;

uint32_t word_at(const char* bytes) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = word << 8 | static_cast<unsigned char>(bytes[i]);
  return word;
}

void absorb(State& state, const char* block) {
  std::array<uint32_t, 64> words;
  for (size_t i = 0; i < 16; ++i) words[i] = word_at(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t w15 = words[i - 15], w2 = words[i - 2];
    const uint32_t s0 = std::rotr(w15, 7) ^ std::rotr(w15, 18) ^ w15 >> 3;
    const uint32_t s1 = std::rotr(w2, 17) ^ std::rotr(w2, 19) ^ w2 >> 10;
    words[i] = words[i - 16] + s0 + words[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRounds[i] + words[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const State mixed = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) state[i] += mixed[i];
}

}  // namespace

Sha256 sha256(std::string_view bytes) {
  // Of the square roots of the first 8 primes.
  State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const uint64_t num_bits = bytes.size() * 8;
  for (; bytes.size() >= kBlockBytes; bytes.remove_prefix(kBlockBytes)) absorb(state, bytes.data());
  std::string end(bytes);
  end += '\x80';
  while (end.size() % kBlockBytes != kBlockBytes - 8) end += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) end += static_cast<char>(num_bits >> shift & 0xff);
  for (size_t at = 0; at < end.size(); at += kBlockBytes) absorb(state, end.data() + at);
  Sha256 hash;
  for (size_t i = 0; i < hash.size(); ++i)
    hash[i] = static_cast<unsigned char>(state[i / 4] >> (24 - 8 * (i % 4)) & 0xff);
  return hash;
}

Sha256 hmac_sha256(std::string_view key, std::string_view bytes) {
  std::string block(key.size() > kBlockBytes ? as_text(sha256(key)) : key);
  block.resize(kBlockBytes, '\0');
  std::string inner = block, outer = block;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  const Sha256 inside = sha256(inner.append(bytes));
  return sha256(outer.append(as_text(inside)));
}

bool equal_secretly(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;  // read and written each time: no early way out
  for (size_t i = 0; i < a.size(); ++i) difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace tandem
