// A kernel's scratch memory, cut into parts that all begin where libraries want them to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/base/error.h"

namespace tandem::cuda {

inline constexpr size_t kScratchAlignment = 256;

constexpr size_t aligned(size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

// Where it begins in a workspace of at least `needed` bytes, of which kScratchAlignment are for this.
inline std::byte* aligned_begin(std::span<std::byte> workspace, size_t needed) {
  TANDEM_CHECK(workspace.size() >= needed, "{} bytes of workspace, not {}", workspace.size(), needed);
  return reinterpret_cast<std::byte*>(aligned(reinterpret_cast<uintptr_t>(workspace.data())));
}

}  // namespace tandem::cuda
