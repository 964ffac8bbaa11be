// The order of the six products, over any unit that multiplies tiles: AMX, or what tests have in its place.
// Included inside an anonymous namespace, as gemm_micro-inl.h is. A unit holds a part of A and one of B, two
// tiles each, and 32 x 32 sums. multiply() adds the four products of tiles; the others then load what the
// next product needs, each tile as soon as it is free. step() is called once for each 32 values of k.
//
// Neighbours share a factor, so that 14 loads do for 24 products of tiles. The largest comes last.
//
// fetch() asks for a part that the next step loads, so that loads need not wait for the second-level cache.
// The next step after the last is the first of the product that follows as a rule: the next panel of A, which
// lies behind this one, by the same panel of B.
template <typename Unit>
void split_product(Unit& unit, int64_t k, const void* a, const void* b) {
  const auto* a_at = static_cast<const std::byte*>(a);
  const auto* b_at = static_cast<const std::byte*>(b);
  unit.load(a_at, b_at);
  for (int64_t i = 0; i < k; i += kSplitDepth) {
    const bool last = i + kSplitDepth >= k;
    const std::byte* next_a = a_at + kSplitParts * kSplitPartBytes;
    const std::byte* next_b = last ? static_cast<const std::byte*>(b) : b_at + kSplitParts * kSplitPartBytes;
    unit.step();
    unit.fetch(next_a);
    unit.multiply_then_load_a(a_at + kSplitPartBytes);  // x3 y1
    unit.fetch(next_b);
    unit.multiply_then_load_b(b_at + kSplitPartBytes);  // x2 y1
    unit.fetch(next_a + kSplitPartBytes);
    unit.multiply_then_load_a(a_at + 2 * kSplitPartBytes);  // x2 y2
    unit.fetch(next_b + kSplitPartBytes);
    unit.multiply_then_load_b(b_at + 2 * kSplitPartBytes);  // x1 y2
    unit.fetch(next_a + 2 * kSplitPartBytes);
    unit.multiply_then_load_b(b_at);  // x1 y3
    unit.fetch(next_b + 2 * kSplitPartBytes);
    if (last) {
      unit.multiply();  // x1 y1
    } else {
      unit.multiply_then_load(next_a, next_b);
    }
    a_at = next_a;
    b_at = next_b;
  }
}
