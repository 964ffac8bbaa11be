// The engines, one for each level and panel type. A pass is as long as a panel of B fits into the first-level
// cache with room to spare for A: longer ones read and write C less often.
#include "tandem/kernels/cpu/gemm/gemm_engine.h"

#include <unistd.h>

#include "tandem/kernels/cpu/gemm/gemm_blocking.h"
#include "tandem/kernels/cpu/gemm/gemm_split.h"

namespace tandem::cpu {
namespace {

GemmEngine float_engine(Isa isa, const GemmMicro& micro, TileSize tile, int64_t kc) {
  const GemmPacks& packs = gemm_packs(isa);
  return {.elem_bytes = 4,
          .mr = tile.mr,
          .nr = tile.nr,
          .k_unit = 1,
          .kc = kc,
          .block_panels = divide_up(112, tile.mr),
          .block_least = 1,
          .shared_least = 1,
          .whole_rows = false,
          .pack_a = packs.a_f32,
          .pack_b = packs.b_f32,
          .product = micro.product,
          .finish = gemm_finish(isa),
          .enter = nullptr,
          .leave = nullptr,
          .burn = micro.burn,
          .burn_flops = micro.burn_flops};
}

// Twice the rows of the others in a task, since its panels of B are half as wide: they are read from afar
// half as often, and on Sapphire Rapids anything beyond the second level takes 140 ns.
GemmEngine avx512_engine() {
  const bool large_cache = ::sysconf(_SC_LEVEL1_DCACHE_SIZE) >= 48 << 10;  // Intel's; Zen 4 has 32 KiB
  GemmEngine engine = float_engine(Isa::Avx512, gemm_micro_avx512(), kAvx512Tile, large_cache ? 512 : 384);
  engine.block_panels = 8;
  return engine;
}

GemmEngine pair_engine() {
  GemmEngine engine = float_engine(Isa::Avx512Bf16, gemm_micro_avx512_bf16(), kPairTile, 768);
  engine.elem_bytes = 2;
  engine.k_unit = 2;
  engine.pack_a = gemm_packs(Isa::Avx512Bf16).a_pairs;
  engine.pack_b = gemm_packs(Isa::Avx512Bf16).b_pairs;
  return engine;
}

GemmEngine amx_engine() {
  static_assert(kAmxTile.nr == kPairTile.nr, "both use the same panels of B");
  GemmEngine engine = float_engine(Isa::Amx, gemm_micro_amx(), kAmxTile, 512);
  engine.elem_bytes = 2;
  engine.k_unit = 32;
  engine.whole_rows = true;
  engine.pack_a = gemm_packs(Isa::Amx).a_tiles;
  engine.pack_b = gemm_packs(Isa::Amx).b_pairs;
  engine.enter = amx_enter;
  engine.leave = amx_leave;
  return engine;
}

// Panels are read from the second-level cache, which by count of cycles keeps up: 14 loads of about 20 for 24
// products of 16. So a pass may be long, and a task has as many rows as leave room there for panels of B. It
// has two panels of rows at least, so that what comes of B from afar is used twice; four where narrower tasks
// can make up for the number, since two ask for as many lines at a time as the second level can wait for.
GemmEngine split_engine() {
  GemmEngine engine = amx_engine();
  const GemmMicro micro = gemm_micro_amx_split();
  engine.elem_bytes = kSplitElemBytes;
  engine.k_unit = kSplitDepth;
  engine.kc = 512;
  engine.block_panels = 8;
  engine.block_least = 2;
  engine.shared_least = 4;
  engine.pack_a = pack_split_a;
  engine.pack_b = pack_split_b;
  engine.product = micro.product;
  engine.burn = micro.burn;
  engine.burn_flops = micro.burn_flops;
  return engine;
}

}  // namespace

const GemmEngine& gemm_engine(Isa isa, DType storage) {
  static const GemmEngine portable = float_engine(Isa::Portable, gemm_micro_portable(), kPortableTile, 384);
  static const GemmEngine avx2 = float_engine(Isa::Avx2, gemm_micro_avx2(), kAvx2Tile, 384);
  static const GemmEngine avx512 = avx512_engine();
  static const GemmEngine pairs = pair_engine();
  static const GemmEngine amx = amx_engine();
  static const GemmEngine split = split_engine();
  if (isa == Isa::Amx) return storage == DType::BF16 ? amx : split;
  if (storage == DType::BF16 && isa == Isa::Avx512Bf16) return pairs;
  if (isa >= Isa::Avx512) return avx512;
  return isa == Isa::Avx2 ? avx2 : portable;
}

}  // namespace tandem::cpu
