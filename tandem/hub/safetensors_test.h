// Safetensors files written by hand, good and bad ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tandem::hub {

inline std::string little_endian(uint64_t value) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

inline std::string file_of(const std::string& header, const std::string& data = "") {
  return little_endian(header.size()) + header + data;
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace tandem::hub
