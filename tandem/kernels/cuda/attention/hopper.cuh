// What Hopper's matrix units need, as functions: tiles that the copy engine brings into shared memory,
// barriers that count bytes and arrivals, and products that run beside the threads that started them.
//
// A tile in shared memory is 64 rows of 64 elements of 16 bits, 128 bytes a row, and begins at a multiple of
// 1024 bytes. Its 16-byte pieces are swizzled: piece p of row r lies where p xor (r mod 8) would.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace tandem::cuda::hopper {

inline constexpr int kTileSide = 64;
inline constexpr int kTileBytes = kTileSide * kTileSide * 2;
inline constexpr int kWarpgroup = 128;  // threads that start a product together

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// A barrier in shared memory whose phase ends when `arrivals` threads have arrived and all bytes they
// announced are there. Phases alternate between parities 0 and 1.
struct Barrier {
  uint64_t state;

  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals));
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }
  __device__ void arrive_expecting(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)),
                 "r"(bytes)
                 : "memory");
  }
  // Until the phase of this parity has ended.
  __device__ void wait(uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(shared_address(this)),
        "r"(parity)
        : "memory");
  }
};

// A place in a ring of buffers, and the parity of the phase in which its barriers are.
template <int kBuffers>
struct Ring {
  int at = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++at < kBuffers) return;
    at = 0;
    parity ^= 1;
  }
};

// What the thread has written to shared memory comes before what the copy engine will write there.
__device__ __forceinline__ void hand_to_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Makes barriers that a thread has initialized visible to the copy engine.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// A tile of the tensor of rows that `map` describes: columns from `column`, rows from `row` of sequence
// `sequence`. Rows beyond the sequence become zeros.
__device__ __forceinline__ void load_tile(void* tile, const CUtensorMap& map, Barrier& arrived, int column,
                                          int row, int sequence) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(shared_address(tile)),
      "l"(&map), "r"(shared_address(&arrived)), "r"(column), "r"(row), "r"(sequence)
      : "memory");
}

// Bytes as they are; addresses and count are multiples of 16.
__device__ __forceinline__ void load_bytes(void* shared, const void* global, int bytes, Barrier& arrived) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(&arrived))
      : "memory");
}

// Into the L2 cache, the line with this address.
__device__ __forceinline__ void prefetch(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

// All threads of a warpgroup.
__device__ __forceinline__ void sync_warpgroup() {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + static_cast<int>(threadIdx.x) / kWarpgroup), "n"(kWarpgroup)
               : "memory");
}

// Registers that a thread of a warpgroup may use from here on.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A warpgroup's part of a 64 x 64 matrix of fp32: thread t has rows 16 (t / 32) + t % 32 / 4 and 8 more, and
// value[4 g + 2 h + i] is column 8 g + 2 (t % 4) + i of row h.
struct Sums {
  float value[32];
};

// A warpgroup's part of a 64 x 64 matrix of 16 bits, the left factor of a product: as Sums has it, columns
// two and two. For factors that were just made: one that is to live through a loop belongs in a tile. Where
// the gradient of attention kept its rows as factors, ptxas (13.0) gave others of the loop the same
// registers.
struct Factor {
  uint32_t pair[16];
};

// The thread's warpgroup. The compiler knows that all threads of a warp get the same.
__device__ __forceinline__ int warpgroup() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
}
__device__ __forceinline__ int sums_row() {
  return static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
}
__device__ __forceinline__ int sums_column() { return static_cast<int>(threadIdx.x) % 4 * 2; }

// Where a pair of columns lies in a tile.
__device__ __forceinline__ int tile_offset(int row, int column) {
  return row * 128 + ((column / 8 ^ row % 8) * 16) + column % 8 * 2;
}

// The matrix units' name of a tile.
__device__ __forceinline__ uint64_t tile_descriptor(const void* tile) {
  constexpr uint64_t kEightRows = 1024 / 16, kSwizzled = uint64_t{1} << 62;
  return kSwizzled | kEightRows << 32 | kEightRows << 16 | (shared_address(tile) & 0x3ffff) / 16;
}

// Products run in the order in which they were started, in groups. Between writing registers that a product
// reads or adds to, and starting it, comes begin_products().
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_product_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until all groups but the latest kPending are done.
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// The compiler does not know that a product writes its sums later: none is read before this.
__device__ __forceinline__ void are_there(Sums& sums) {
#pragma unroll
  for (float& x : sums.value) asm volatile("" : "+f"(x)::"memory");
}
__device__ __forceinline__ void are_there(Factor& factor) {
#pragma unroll
  for (uint32_t& x : factor.pair) asm volatile("" : "+r"(x)::"memory");
}

#define TANDEM_SUMS(s)                                                                                      \
  "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7]),           \
      "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]), "+f"(s[14]), "+f"(s[15]), \
      "+f"(s[16]), "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]), "+f"(s[21]), "+f"(s[22]),            \
      "+f"(s[23]), "+f"(s[24]), "+f"(s[25]), "+f"(s[26]), "+f"(s[27]), "+f"(s[28]), "+f"(s[29]),            \
      "+f"(s[30]), "+f"(s[31])
#define TANDEM_PRODUCT(TYPE, A, TRANSPOSES, ...)                                                            \
  asm volatile(                                                                                             \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %32, 0;\n"                                                      \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                                           \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "   \
      "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " A ", %33, add, 1, 1, " TRANSPOSES ";\n}\n" \
      : TANDEM_SUMS(sums.value)                                                                             \
      : "r"(static_cast<int>(add)), "l"(b), __VA_ARGS__)
#define TANDEM_PRODUCT_OF(A, TRANSPOSES, ...)           \
  if constexpr (std::is_same_v<T, __half>) {            \
    TANDEM_PRODUCT("f16", A, TRANSPOSES, __VA_ARGS__);  \
  } else {                                              \
    TANDEM_PRODUCT("bf16", A, TRANSPOSES, __VA_ARGS__); \
  }

// Start sums [+]= a b^T over 16 columns of both tiles.
template <typename T>
__device__ __forceinline__ void start_step(Sums& sums, uint64_t a, uint64_t b, bool add) {
  TANDEM_PRODUCT_OF("%34", "0, 0", "l"(a))
}
// Start sums [+]= a b over 16 columns of a and 16 rows of b.
template <typename T>
__device__ __forceinline__ void start_step(Sums& sums, const uint32_t* a, uint64_t b, bool add) {
  TANDEM_PRODUCT_OF("{%34, %35, %36, %37}", "1", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]))
}
#undef TANDEM_PRODUCT_OF
#undef TANDEM_PRODUCT
#undef TANDEM_SUMS

// Start sums = a b^T of two tiles.
template <typename T>
__device__ __forceinline__ void start_scores(Sums& sums, uint64_t a, uint64_t b) {
#pragma unroll
  for (int k = 0; k < 4; ++k)  // a row's next 32 bytes
    start_step<T>(sums, a + static_cast<uint64_t>(2 * k), b + static_cast<uint64_t>(2 * k), k > 0);
}
// Start sums [+]= a b.
template <typename T>
__device__ __forceinline__ void start_mixing(Sums& sums, const Factor& a, uint64_t b, bool add) {
#pragma unroll
  for (int k = 0; k < 4; ++k)  // the next 16 rows
    start_step<T>(sums, a.pair + 4 * k, b + static_cast<uint64_t>(128 * k), add || k > 0);
}

template <typename T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, __half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tandem::cuda::hopper
