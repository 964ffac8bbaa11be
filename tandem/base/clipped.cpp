#include "tandem/base/clipped.h"

#include <fmt/format.h>

namespace tandem {
namespace {

constexpr size_t kHead = kMostLineBytes - 600, kTail = 500;

bool inside_character(char c) { return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u; }  // of UTF-8

}  // namespace

std::string clipped(std::string_view line) {
  if (line.size() <= kMostLineBytes) return std::string(line);
  size_t head = kHead, tail = line.size() - kTail;
  while (head > kHead - 4 && inside_character(line[head])) --head;
  while (tail < line.size() - kTail + 4 && inside_character(line[tail])) ++tail;
  return fmt::format("{} [... {} bytes ...] {}", line.substr(0, head), tail - head, line.substr(tail));
}

}  // namespace tandem
