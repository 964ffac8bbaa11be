// The kernels of generation against the reference, on every instruction set, with the same bits for any
// number of threads. A missing or foreign key, head or factor would show as 1e-2 or more.
#include "tandem/kernels/cpu/attention/cached_case_test.h"

namespace tandem::cpu {
namespace {

void expect_as_reference(const Call& call, const std::string& kernel, double slack) {
  const KernelRegistry registry = all_kernels();
  const Kernel& fast = registry.by_name(kernel);
  const auto want = run(reference_kernel(call.op), call, pool_of(1));
  for_each_target([&] {
    const auto got = run(fast, call, pool_of(1));
    for (size_t k = 0; k < got.size(); ++k) expect_near(got[k], want[k], slack, fmt::format("output {}", k));
    for (const int num_threads : {2, 4})
      EXPECT_EQ(run(fast, call, pool_of(num_threads)), got) << num_threads << " threads";
  });
}

TEST(CachedAttention, MatchesReferenceOverRaggedShapes) {
  for (const CachedCase& c : cached_cases()) {
    SCOPED_TRACE(c.describe());
    expect_as_reference(c.call(), "cpu.cached_attention", 4e-6);
    if (HasFatalFailure()) return;
  }
}

TEST(CachedAttention, HasLargerTasksInALongCache) {
  expect_as_reference(long_cached_case().call(), "cpu.cached_attention", 4e-6);
}

TEST(CachedAttention, TakesAttentionsOutputsWhereAllTokensAreNew) {
  const Call cached = CachedCase{1, 90, 4, 2, 40, 90, 0, 90}.call();
  Call whole{Op::Attention,
             {cached.in[0]},
             {cached.out[0], {DType::F32, {1, 4, 90}}},
             {-1, -1},
             {{"heads", int64_t{4}}, {"kv_heads", int64_t{2}}, {"causal", int64_t{1}}}};
  expect_near(run(reference_kernel(Op::CachedAttention), cached, pool_of(1))[0],
              run(reference_kernel(Op::Attention), whole, pool_of(1))[0], 1e-6, "out");
}

TEST(Gemv, MatchesReferenceOverRaggedShapes) {
  for (const DType dtype : kStorage) {
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                                  {1, 5, 7},
                                  {2, 33, 31},
                                  {1, 600, 576},
                                  {3, 70, 100},
                                  {4, 17, 1000},
                                  {1, 2000, 40}}) {
      for (const bool bias : {false, true}) {
        SCOPED_TRACE(fmt::format("{} m={} n={} k={} bias {}", dtype_name(dtype), m, n, k, bias));
        expect_as_reference(few_rows_call(dtype, m, n, k, bias, false), "cpu.gemv", 1e-5);
        expect_as_reference(few_rows_call(dtype, m, n, k, bias, true), "cpu.gemv", 1e-5);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Gemv, MatchesReferenceWithGelu) {
  for (const DType dtype : kStorage) {
    Call call = few_rows_call(dtype, 1, 300, 96, true, false);
    call.op = Op::MatmulGelu;
    call.out.push_back(call.out[0]);
    call.shares.push_back(-1);
    expect_as_reference(call, "cpu.gemv_gelu", dtype == DType::BF16 ? 2e-2 : 2e-3);
  }
}

// Training has bits that do not depend on how many rows there are: it must not get this kernel.
TEST(Gemv, IsForStepsThatAskForIt) {
  Call call = few_rows_call(DType::F32, 1, 8, 8, false, false);
  const auto chosen = [&] {
    static const KernelRegistry registry = all_kernels();
    return registry.choose({call.op, {call.in[0].type, call.in[1].type}, call.out, &call.attrs}).name;
  };
  EXPECT_EQ(chosen(), "cpu.gemv");
  call.attrs = {{"trans_a", int64_t{0}}, {"trans_b", int64_t{1}}};
  EXPECT_EQ(chosen(), "cpu.matmul");
}

TEST(Positions, CountFromWhereTheTextStands) {
  for (const DType dtype : kStorage) {
    for (const int64_t first : {0, 5, 37}) {
      expect_as_reference(rope_at_call(dtype, 1, first), "cpu.rope", 4e-6);
      expect_as_reference(rope_at_call(dtype, 20, first), "cpu.rope", 4e-6);
      expect_as_reference(embedding_at_call(dtype, 1, first), "cpu.embedding", 0);
      expect_as_reference(embedding_at_call(dtype, 9, first), "cpu.embedding", 0);  // past the last position
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
