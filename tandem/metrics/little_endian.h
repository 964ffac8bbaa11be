// Whole numbers as bytes, the lowest first, as most file formats have them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

template <typename T>
void put_little_endian(std::string& text, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) text += static_cast<char>((value >> (8 * i)) & 0xff);
}

// Of the first bytes of `text`, which has enough.
template <typename T>
T get_little_endian(std::string_view text) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(static_cast<unsigned char>(text[i])) << (8 * i));
  return value;
}

}  // namespace tandem
