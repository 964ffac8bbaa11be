// The order of the six products, over any unit that multiplies tiles: AMX, or what tests have in its place.
// Included inside an anonymous namespace, as gemm_micro-inl.h is. load_a() and load_b() take a part of 32
// lines, two tiles; multiply() adds the four products of tiles to the unit's 32 x 32 sums.
//
// Neighbours share a factor, so that 14 loads do for 24 products of tiles. The largest comes last.
template <typename Unit>
void split_product(Unit& unit, int64_t k, const void* a, const void* b, const FetchAhead& ahead) {
  const auto* a_at = static_cast<const std::byte*>(a);
  const auto* b_at = static_cast<const std::byte*>(b);
  const int64_t fetches = (ahead.lines * kSplitDepth + k - 1) / k;  // with each 32 values of k
  int64_t fetched = 0;
  for (int64_t i = 0; i < k; i += kSplitDepth) {
    const std::byte *a3 = a_at, *a2 = a_at + kSplitPartBytes, *a1 = a_at + 2 * kSplitPartBytes;
    const std::byte *b1 = b_at, *b2 = b_at + kSplitPartBytes, *b3 = b_at + 2 * kSplitPartBytes;
    unit.load_a(a3);
    unit.load_b(b1);
    unit.multiply();
    unit.load_a(a2);
    unit.multiply();
    unit.load_b(b2);
    unit.multiply();
    unit.load_a(a1);
    unit.multiply();
    unit.load_b(b3);
    unit.multiply();
    unit.load_b(b1);
    unit.multiply();
    a_at += kSplitParts * kSplitPartBytes;
    b_at += kSplitParts * kSplitPartBytes;
    for (const int64_t end = std::min(fetched + fetches, ahead.lines); fetched < end; ++fetched) {
      __builtin_prefetch(ahead.first + 64 * fetched, 0, 2);
    }
  }
}
