// The register-tile product, written once for every vector type. Included by each gemm_micro_*.cpp inside
// its own namespace and after its `#pragma GCC target`, which decides the instructions.
//
// V provides: Reg, Elem (one step of k for one row or column), kDepth (values of k in a step), kLanes, kMr
// and kVecs (rows and vectors of a tile); zero, load, load_sums, store, broadcast, add, and fma(a, b, sum).

constexpr int kPrefetchSteps = 8;  // how far ahead B is fetched

template <typename V, int kRows, int kVecs>
void tile_product(int64_t k, const typename V::Elem* a, const typename V::Elem* b, float* dst,
                  int64_t dst_stride, bool add, const FetchAhead& ahead) {
  constexpr int kNr = V::kVecs * V::kLanes;
  constexpr int kFetchSteps = sizeof(typename V::Reg) == 64 ? 8 : 16;  // between two rows of C fetched
  constexpr bool kTwoLines = kVecs * sizeof(typename V::Reg) > 64;     // in a row of the tile
  typename V::Reg sums[kRows][kVecs];
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sums[r][v] = V::zero();
  }
  const auto step = [&]() __attribute__((always_inline)) {
    typename V::Reg bs[kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) bs[v] = V::load(b + v * V::kLanes);
    __builtin_prefetch(b + kPrefetchSteps * kNr);
    if constexpr (kTwoLines) __builtin_prefetch(b + kPrefetchSteps * kNr + V::kLanes);
#pragma GCC unroll 32
    for (int r = 0; r < kRows; ++r) {
      const typename V::Reg as = V::broadcast(a + r);
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) sums[r][v] = V::fma(as, bs[v], sums[r][v]);
    }
    a += V::kMr;
    b += kNr;
  };
  // C and what the caller wants next come from afar. A line each few steps leaves the buffers that lines
  // arrive in free for the panels; all at once would have the panels wait.
  const float* row = dst;
  const std::byte* line = ahead.first;
  int64_t rows_left = kRows, lines_left = ahead.lines, i = 0;
  for (; i + kFetchSteps <= k; i += kFetchSteps) {
    __builtin_prefetch(row, 1);
    __builtin_prefetch(line, 0, 2);
#pragma GCC unroll 8
    for (int s = 0; s < kFetchSteps / 2; ++s) step();
    if constexpr (kTwoLines) __builtin_prefetch(row + V::kLanes, 1);
#pragma GCC unroll 8
    for (int s = 0; s < kFetchSteps / 2; ++s) step();
    row += --rows_left > 0 ? dst_stride : 0;
    line += --lines_left > 0 ? 64 : 0;
  }
  for (; i < k; ++i) step();
#pragma GCC unroll 32
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      float* at = dst + r * dst_stride + v * V::kLanes;
      V::store(at, add ? V::add(V::load_sums(at), sums[r][v]) : sums[r][v]);
    }
  }
}

template <typename V, int... kRowsLess1>
void product_for(std::integer_sequence<int, kRowsLess1...>, int64_t k, const void* a, const void* b,
                 float* dst, int64_t dst_stride, int64_t rows, int64_t cols, bool add,
                 const FetchAhead& ahead) {
  using Elem = typename V::Elem;
  using Fn = void (*)(int64_t, const Elem*, const Elem*, float*, int64_t, bool, const FetchAhead&);
  static constexpr Fn kNarrow[] = {tile_product<V, kRowsLess1 + 1, 1>...};
  static constexpr Fn kWide[] = {tile_product<V, kRowsLess1 + 1, V::kVecs>...};
  const Fn fn = cols > V::kLanes ? kWide[rows - 1] : kNarrow[rows - 1];
  fn((k + V::kDepth - 1) / V::kDepth, static_cast<const Elem*>(a), static_cast<const Elem*>(b), dst,
     dst_stride, add, ahead);
}

template <typename V>
void product(int64_t k, const void* a, const void* b, float* dst, int64_t dst_stride, int64_t rows,
             int64_t cols, bool add, const FetchAhead& ahead) {
  product_for<V>(std::make_integer_sequence<int, V::kMr>(), k, a, b, dst, dst_stride, rows, cols, add, ahead);
}

constexpr int kBurnSums = 12;

template <typename V>
float burn(int64_t rounds) {
  const typename V::Elem one{};
  const typename V::Reg x = V::broadcast(&one);
  typename V::Reg sums[kBurnSums];
#pragma GCC unroll 16
  for (int s = 0; s < kBurnSums; ++s) sums[s] = V::zero();
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kBurnSums; ++s) sums[s] = V::fma(x, x, sums[s]);
#pragma GCC unroll 16
    for (int s = 0; s < kBurnSums; ++s) asm volatile("" : "+x"(sums[s]));
  }
  alignas(64) float out[V::kLanes];
  float total = 0;
#pragma GCC unroll 16
  for (int s = 0; s < kBurnSums; ++s) {
    V::store(out, sums[s]);
    total += out[0];
  }
  return total;
}

template <typename V>
GemmMicro micro() {
  return {product<V>, burn<V>, 2.0 * kBurnSums * V::kLanes * V::kDepth};
}
