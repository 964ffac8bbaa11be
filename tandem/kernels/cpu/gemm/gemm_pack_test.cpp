// The layouts that the register tiles read, checked element by element: AMX cannot be run on most machines,
// but what it is fed can be.
#include <gtest/gtest.h>

#include <vector>

#include "tandem/kernels/cpu/gemm/gemm_engine.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kLines = 45, kDepth = 70, kPadded = 96;

// Value of (line, k): its own number, so that a misplaced one shows.
uint16_t bits_of(int64_t line, int64_t k) { return static_cast<uint16_t>(1 + line * kDepth + k); }

PackArgs pack_args(const std::vector<uint16_t>& src, bool along_k, std::vector<uint16_t>& dst,
                   int64_t panel_elems) {
  return {.src = src.data(),
          .dtype = DType::BF16,
          .line_stride = along_k ? kDepth : 1,
          .k_stride = along_k ? 1 : kLines,
          .count = kLines,
          .k = kDepth,
          .k_padded = kPadded,
          .dst = dst.data(),
          .panel_bytes = panel_elems * 2};
}

std::vector<uint16_t> source(bool along_k) {
  std::vector<uint16_t> src(kLines * kDepth);
  for (int64_t line = 0; line < kLines; ++line) {
    for (int64_t k = 0; k < kDepth; ++k) {
      src[static_cast<size_t>(along_k ? line * kDepth + k : k * kLines + line)] = bits_of(line, k);
    }
  }
  return src;
}

TEST(GemmPack, LaysOutTilesOfAAsAmxReadsThem) {
  for (Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512}) {
    if (isa > detected_isa()) continue;
    for (bool along_k : {true, false}) {
      const std::vector<uint16_t> src = source(along_k);
      const int64_t panel = kAmxTile.mr * kPadded;
      std::vector<uint16_t> dst(static_cast<size_t>(2 * panel + 32), 0xffff);
      gemm_packs(isa).a_tiles(pack_args(src, along_k, dst, panel));
      for (int64_t line = 0; line < kLines; ++line) {
        for (int64_t k = 0; k < kPadded; ++k) {
          const int64_t at = line / 32 * panel + k / 32 * 32 * 32 + line % 32 * 32 + k % 32;
          ASSERT_EQ(dst[static_cast<size_t>(at)], k < kDepth ? bits_of(line, k) : 0)
              << isa_name(isa) << " along_k " << along_k << " line " << line << " k " << k;
        }
      }
    }
  }
}

TEST(GemmPack, LaysOutPanelsOfBAsPairs) {
  if (detected_isa() < Isa::Avx512) GTEST_SKIP() << "panels of pairs are used from avx512_bf16 on";
  for (bool along_k : {true, false}) {
    const std::vector<uint16_t> src = source(along_k);
    const int64_t width = kPairTile.nr, panel = width * kPadded;
    std::vector<uint16_t> dst(static_cast<size_t>(2 * panel + 32), 0xffff);
    gemm_packs(Isa::Avx512).b_pairs(pack_args(src, along_k, dst, panel));
    for (int64_t line = 0; line < kLines; ++line) {
      for (int64_t k = 0; k < kPadded; ++k) {
        const int64_t at = line / width * panel + (k / 2 * width + line % width) * 2 + k % 2;
        ASSERT_EQ(dst[static_cast<size_t>(at)], k < kDepth ? bits_of(line, k) : 0)
            << "along_k " << along_k << " line " << line << " k " << k;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
