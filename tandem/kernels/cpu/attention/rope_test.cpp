// The fast rotary kernels against the reference, and as each other's inverse. Results are a few products of
// fp32 numbers of order one, so they agree to a few units in the last place of the storage type.
#include <gtest/gtest.h>

#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"
#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {
namespace {

KernelRegistry fast_kernels() {
  KernelRegistry registry;
  add_attention_kernels(registry);
  return registry;
}

double tolerance(DType dtype) {
  if (dtype == DType::BF16) return 0x1p-7;
  if (dtype == DType::F16) return 0x1p-10;
  return 1e-6;
}

struct Case {
  int64_t batch, tokens, heads, kv_heads, head_dim;
  double theta;
  int64_t dims = 0;
  std::string scaling = "none";
  Attrs attrs() const {
    Attrs attrs{{"heads", heads}, {"kv_heads", kv_heads}, {"theta", theta}};
    if (dims != 0) attrs.set("dims", dims);
    if (scaling != "none") attrs.set("scaling", scaling);
    return attrs;
  }
  Shape qkv() const { return {batch, tokens, (heads + 2 * kv_heads) * head_dim}; }
};

const Case kCases[] = {
    {2, 1, 1, 1, 2, 10000.0},
    {1, 5, 3, 1, 20, 10000.0},
    {2, 67, 4, 2, 64, 10000.0},
    {1, 33, 2, 2, 80, 500000.0},
    {1, 2100, 1, 1, 16, 10000.0},
    {2, 67, 4, 2, 64, 10000.0, 24},
    {1, 33, 3, 1, 20, 500.0, 6, "linear:factor=3"},
    {1, 67, 2, 1, 40, 10000.0, 0, "yarn:factor=4,original_max_position_embeddings=32"},
    {1, 67, 2, 1, 20, 10000.0, 4,
     "longrope:short_factor=1 2,long_factor=2 3,original_max_position_embeddings=32,factor=2"}};

TEST(Rope, MatchesReferenceOverRaggedShapes) {
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      for (const auto& [op, name] :
           {std::pair{Op::Rope, "cpu.rope"}, std::pair{Op::RopeGrad, "cpu.rope_grad"}}) {
        SCOPED_TRACE(fmt::format("{} T {} head_dim {} {}", name, c.tokens, c.head_dim, dtype_name(dtype)));
        KernelRun expected(op, c.attrs());
        expected.random_in(dtype, c.qkv(), 1).in_place_out();
        KernelRun actual = expected;
        expected.run_reference();
        actual.run(fast_kernels(), name);
        expect_near(actual.result(0), expected.result(0), tolerance(dtype));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Positions that tokens bring along, falling here, so that none is where its token stands.
TEST(Rope, TurnsByPositionsOfItsOwn) {
  for (const Case& c : kCases) {
    Attrs attrs = c.attrs();
    attrs.set("positions", int64_t{1});
    std::vector<double> positions(static_cast<size_t>(c.batch * c.tokens));
    for (size_t i = 0; i < positions.size(); ++i)
      positions[i] = static_cast<double>((positions.size() - 1 - i) * 5 % static_cast<size_t>(c.tokens));
    for (const auto& [op, name] :
         {std::pair{Op::Rope, "cpu.rope"}, std::pair{Op::RopeGrad, "cpu.rope_grad"}}) {
      KernelRun expected(op, attrs);
      expected.random_in(DType::F32, c.qkv(), 1)
          .in(DType::I32, {c.batch, c.tokens}, positions)
          .in_place_out();
      KernelRun actual = expected;
      expected.run_reference();
      actual.run(fast_kernels(), name, 3);
      expect_near(actual.result(0), expected.result(0), tolerance(DType::F32));
    }
  }
}

TEST(Rope, ByPositionsInTheSequenceGivesTheSameBitsAsWithoutAny) {
  const Case c{3, 130, 4, 2, 40, 10000.0};
  std::vector<double> positions;
  for (int i = 0; i < 3 * 130; ++i) positions.push_back(i % 130);
  Attrs attrs = c.attrs();
  attrs.set("positions", int64_t{1});
  KernelRun plain(Op::Rope, c.attrs()), own(Op::Rope, attrs);
  plain.random_in(DType::F32, c.qkv(), 1).in_place_out();
  own.random_in(DType::F32, c.qkv(), 1).in(DType::I32, {3, 130}, positions).in_place_out();
  EXPECT_EQ(own.run(fast_kernels(), "cpu.rope", 2).result_bytes(0),
            plain.run(fast_kernels(), "cpu.rope", 2).result_bytes(0));
}

TEST(RopeGrad, TurnsBackWhatRopeTurned) {
  const Case c{1, 300, 2, 1, 48, 10000.0};
  KernelRun forward(Op::Rope, c.attrs());
  forward.random_in(DType::F32, c.qkv(), 1).in_place_out();
  KernelRun original(Op::Scale, {{"factor", 1.0}});
  original.random_in(DType::F32, c.qkv(), 1).out(DType::F32, c.qkv()).run_reference();
  forward.run(fast_kernels(), "cpu.rope");
  KernelRun backward(Op::RopeGrad, c.attrs());
  backward.in(DType::F32, c.qkv(), forward.result(0)).in_place_out().run(fast_kernels(), "cpu.rope_grad");
  expect_near(backward.result(0), original.result(0), 1e-6);
}

TEST(Rope, GivesTheSameBitsForAnyThreadCount) {
  const Case c{3, 130, 4, 2, 40, 10000.0};
  KernelRun run(Op::Rope, c.attrs());
  run.random_in(DType::F32, c.qkv(), 1).in_place_out();
  const auto one = run.run(fast_kernels(), "cpu.rope", 1).result_bytes(0);
  for (const int threads : {2, 4})
    EXPECT_EQ(one, run.run(fast_kernels(), "cpu.rope", threads).result_bytes(0));
}

}  // namespace
}  // namespace tandem::cpu
