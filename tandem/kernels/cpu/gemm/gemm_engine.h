// What the blocked loops of gemm.cpp need from an instruction set: packing into panels, a register-tile
// product of two panels, and the last step that turns fp32 sums into C.
//
// A panel of A holds `mr` rows, a panel of B `nr` columns; both store, for each step of k, the values of
// all their rows or columns side by side. A step is one k in fp32 panels and a pair of them in bf16 panels;
// panels for AMX are cut into its tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tandem/base/dtype.h"
#include "tandem/kernels/cpu/cpu_features.h"

namespace tandem::cpu {

// `count` lines (rows of A or columns of B) of `k` values each, element (line, i) at
// src[line * line_stride + i * k_stride], into as many panels as it takes, panel_bytes apart. Values from k
// to k_padded are zeros; lines past `count` are zeros or copies of others, since their products are never
// stored. Where the source runs along k, packing may write up to 64 bytes past the last panel.
struct PackArgs {
  const void* src;
  DType dtype;
  int64_t line_stride;
  int64_t k_stride;
  int64_t count;
  int64_t k;
  int64_t k_padded;
  void* dst;
  int64_t panel_bytes;
};

// Turns a tile of fp32 sums into C, in place if c == sums.
struct FinishArgs {
  const float* sums;
  int64_t sums_stride;
  int64_t rows;
  int64_t cols;
  void* c;
  int64_t c_stride;
  DType c_dtype;
  bool accumulate;   // c += sums
  const void* bias;  // of the tile's first column, or null
  DType bias_dtype;  // c's, or any where c is F32
  void* pre;         // like c, or null
};

// Lines in a row that will be needed after a product, for it to fetch into the second-level cache on the way.
// Only a hint: it fetches as many as it has time for.
struct FetchAhead {
  const std::byte* first;  // any address, if there are none
  int64_t lines;
  const std::byte* b_first;  // of packed B; only engines whose panels of B are long fetch them
  int64_t b_lines;
};

struct GemmEngine {
  int64_t elem_bytes;  // of a value in a panel
  int64_t mr;
  int64_t nr;
  int64_t k_unit;        // panels are padded to a multiple of this many values of k
  int64_t kc;            // most values of k in one pass over the panels
  int64_t block_panels;  // most panels of A in a task
  int64_t block_least;   // and fewest, but for the last task
  int64_t shared_least;  // fewest where A is shared, if there are enough tasks then
  bool whole_rows;       // product() always writes mr rows

  void (*pack_a)(const PackArgs& args);
  void (*pack_b)(const PackArgs& args);
  // dst = (add ? dst : 0) + a b, for `rows` rows (mr if whole_rows) and at least `cols` columns, up to nr.
  void (*product)(int64_t k, const void* a, const void* b, float* dst, int64_t dst_stride, int64_t rows,
                  int64_t cols, bool add, const FetchAhead& ahead);
  void (*finish)(const FinishArgs& args);
  void (*enter)();  // called by a thread before and after a run of products; may be null
  void (*leave)();

  float (*burn)(int64_t rounds);  // independent multiply-adds on registers, burn_flops a round
  double burn_flops;
};

// The engine for products of this storage type: bf16 panels only if both operands are bf16 and `isa` has
// instructions for them. Otherwise panels hold fp32 values, on AMX as sums of three bf16 (gemm_split.h).
const GemmEngine& gemm_engine(Isa isa, DType storage);

// --- the pieces, each in its own source ----------------------------------------------------------------

struct GemmPacks {  // gemm_pack.cpp
  void (*a_f32)(const PackArgs&);
  void (*b_f32)(const PackArgs&);
  void (*a_pairs)(const PackArgs&);
  void (*b_pairs)(const PackArgs&);
  void (*a_tiles)(const PackArgs&);
};
const GemmPacks& gemm_packs(Isa isa);
void pack_split_a(const PackArgs& args);  // gemm_pack_split.cpp; needs AVX-512
void pack_split_b(const PackArgs& args);
void (*gemm_finish(Isa isa))(const FinishArgs&);  // gemm_finish.cpp

struct GemmMicro {  // gemm_micro_*.cpp
  decltype(GemmEngine::product) product;
  decltype(GemmEngine::burn) burn;
  double burn_flops;
};
GemmMicro gemm_micro_portable();
GemmMicro gemm_micro_avx2();
GemmMicro gemm_micro_avx512();
GemmMicro gemm_micro_avx512_bf16();
GemmMicro gemm_micro_amx();
GemmMicro gemm_micro_amx_split();
void amx_enter();
void amx_leave();

// Register tiles. Those of AVX-512 use 28 of 32 vector registers for sums. In fp32 they are tall, so that a
// panel of B needs little of the first-level cache and stays there.
struct TileSize {
  int64_t mr;
  int64_t nr;
};
inline constexpr TileSize kPortableTile{4, 8};
inline constexpr TileSize kAvx2Tile{6, 16};
inline constexpr TileSize kAvx512Tile{28, 16};
inline constexpr TileSize kPairTile{14, 32};  // of pairs of bf16
inline constexpr TileSize kAmxTile{32, 32};

}  // namespace tandem::cpu
