#include "tandem/kernels/cpu/pointwise/pointwise_test.h"

namespace tandem::cpu {
namespace {

Call unary(Op op, DType storage, int64_t rows, int64_t width, Attrs attrs = {}, int shares = -1) {
  const TensorType type{storage, {rows, width}};
  return {op, {random_tensor(storage, type.shape, 1, 3)}, {type}, {shares}, std::move(attrs)};
}
Call binary(Op op, DType storage, int64_t rows, int64_t width, int shares = -1, Attrs attrs = {}) {
  const TensorType type{storage, {rows, width}};
  return {op,
          {random_tensor(storage, type.shape, 1, 3), random_tensor(storage, type.shape, 2, 3)},
          {type},
          {shares},
          std::move(attrs)};
}

TEST(Pointwise, MatchesReferenceOverRaggedShapes) {
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    expect_matches_reference(binary(Op::Add, storage, rows, width));
    expect_matches_reference(unary(Op::Scale, storage, rows, width, {{"factor", 0.3}}));
    expect_matches_reference(unary(Op::Gelu, storage, rows, width));
    expect_matches_reference(binary(Op::GeluGrad, storage, rows, width));
    expect_matches_reference(unary(Op::Relu, storage, rows, width));
    expect_matches_reference(binary(Op::ReluGrad, storage, rows, width));
    expect_matches_reference(unary(Op::Softcap, storage, rows, width, {{"cap", 2.5}}));
    expect_matches_reference(binary(Op::SoftcapGrad, storage, rows, width, -1, {{"cap", 2.5}}));
  });
}

TEST(Pointwise, GivesTheSameBitsInPlace) {
  for (const DType storage : kStorage) {
    for (const Op op : {Op::Scale, Op::Gelu, Op::Relu, Op::Softcap}) {
      const Attrs attrs{{"factor", 0.3}, {"cap", 2.5}};
      EXPECT_EQ(run_fast(unary(op, storage, 30, 1001, attrs, 0)),
                run_fast(unary(op, storage, 30, 1001, attrs)));
    }
    for (const Op op : {Op::Add, Op::GeluGrad, Op::ReluGrad, Op::SoftcapGrad}) {
      const Attrs attrs{{"cap", 2.5}};
      EXPECT_EQ(run_fast(binary(op, storage, 30, 1001, 0, attrs)),
                run_fast(binary(op, storage, 30, 1001, -1, attrs)));
    }
  }
}

// An element in the ragged end of a tensor goes through a partial vector, elsewhere through a whole one.
TEST(Pointwise, GivesAnElementTheSameBitsWhereverItIs) {
  for_each_target([] {
    for (const DType storage : kStorage) {
      const Call whole = unary(Op::Gelu, storage, 1, 64);
      const auto want = run_fast(whole);
      for (int64_t n = 1; n < 64; ++n) {
        Call cut = unary(Op::Gelu, storage, 1, n);
        cut.in[0].bytes.assign(whole.in[0].bytes.begin(), whole.in[0].bytes.begin() + cut.in[0].type.bytes());
        const auto got = run_fast(cut);
        EXPECT_EQ(std::memcmp(got[0].bytes.data(), want[0].bytes.data(), got[0].bytes.size()), 0) << n;
      }
    }
  });
}

TEST(Pointwise, KeepsNanAndInfinity) {
  for_each_target([] {
    for (const DType storage : kStorage) {
      Call call = unary(Op::Relu, storage, 1, 40);
      ref::set(call.in[0].arg(), 3, NAN);
      ref::set(call.in[0].arg(), 39, INFINITY);
      for (const Op op : {Op::Relu, Op::Gelu, Op::Scale}) {
        call.op = op;
        call.attrs = {{"factor", 2.0}};
        const auto y = run_fast(call);
        EXPECT_TRUE(std::isnan(y[0].at(3))) << op_name(op) << " " << dtype_name(storage);
        EXPECT_EQ(y[0].at(39), INFINITY) << op_name(op) << " " << dtype_name(storage);
      }
    }
  });
}

TEST(Softcap, EndsAtItsCapAndKeepsNan) {
  for_each_target([] {
    for (const DType storage : kStorage) {
      Call call = unary(Op::Softcap, storage, 1, 40, {{"cap", 30.0}});
      ref::set(call.in[0].arg(), 3, NAN);
      ref::set(call.in[0].arg(), 4, -INFINITY);
      ref::set(call.in[0].arg(), 39, 60000);
      const auto y = run_fast(call);
      EXPECT_TRUE(std::isnan(y[0].at(3))) << dtype_name(storage);
      EXPECT_EQ(y[0].at(4), -30) << dtype_name(storage);
      EXPECT_EQ(y[0].at(39), 30) << dtype_name(storage);
    }
  });
}

TEST(Cast, MatchesReferenceBetweenAllStorageTypes) {
  for (const DType from : kStorage) {
    for (const DType to : kStorage) {
      for (const int64_t width : kRaggedWidths) {
        const Call call{Op::Cast, {random_tensor(from, {17, width}, 1, 30)}, {{to, {17, width}}}, {-1}, {}};
        const auto want = run(reference_kernel(Op::Cast), call, pool_of(1));
        for_each_target(
            [&] { EXPECT_EQ(run_fast(call), want) << dtype_name(from) << " to " << dtype_name(to); });
      }
    }
  }
}

constexpr std::pair<Op, Op> kGated[] = {{Op::Swiglu, Op::SwigluGrad}, {Op::Geglu, Op::GegluGrad}};

TEST(Gated, MatchReferenceOverRaggedShapes) {
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    const HostTensor gate_up = random_tensor(storage, {rows, 2 * width}, 1, 3);
    const HostTensor dy = random_tensor(storage, {rows, width}, 2);
    for (const auto& [op, gradient] : kGated) {
      expect_matches_reference({op, {gate_up}, {dy.type}, {-1}, {}});
      expect_matches_reference({gradient, {dy, gate_up}, {gate_up.type}, {-1}, {}}, 1e-5);
    }
  });
}

TEST(Gated, TheirGradientsGiveTheForwardsBitsAgain) {
  for (const DType storage : kStorage) {
    const HostTensor gate_up = random_tensor(storage, {33, 2 * 31}, 1, 3);
    const HostTensor dy = random_tensor(storage, {33, 31}, 2);
    for (const auto& [op, gradient] : kGated) {
      const Call forward{op, {gate_up}, {dy.type}, {-1}, {}};
      const Call plain{gradient, {dy, gate_up}, {gate_up.type}, {-1}, {}};
      for (const bool in_place : {false, true}) {
        const std::vector<int> shares = in_place ? std::vector<int>{1, 0} : std::vector<int>{-1, -1};
        const Call again{gradient, {dy, gate_up}, {gate_up.type, dy.type}, shares, {{"again", 1}}};
        EXPECT_EQ(run_fast(again)[1], run_fast(forward)[0]);
        EXPECT_EQ(run_fast(again)[0], run_fast(plain)[0]);
        const auto reference = run(reference_kernel(gradient), again, pool_of(1));
        EXPECT_EQ(reference[1], run(reference_kernel(op), forward, pool_of(1))[0]);
        EXPECT_EQ(reference[0], run(reference_kernel(gradient), plain, pool_of(1))[0]);
      }
    }
  }
}

TEST(Swiglu, SaturatesWithoutNan) {
  for_each_target([] {
    Call call{Op::Swiglu, {HostTensor(DType::F32, {1, 4})}, {{DType::F32, {1, 2}}}, {-1}, {}};
    const std::array<float, 4> gate_up = {-200, 200, 1, 1};
    std::memcpy(call.in[0].bytes.data(), gate_up.data(), sizeof(gate_up));
    const auto y = run_fast(call);
    EXPECT_NEAR(y[0].at(0), 0, 1e-30);
    EXPECT_EQ(y[0].at(1), 200);
  });
}

TEST(ShapeOps, MoveColumnsAsTheReferenceDoes) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32, DType::U8}) {
    for (const int64_t rows : kRaggedRows) {
      const HostTensor a = random_tensor(dtype, {rows, 5}, 1, 9, 50),
                       b = random_tensor(dtype, {rows, 100}, 2, 9, 50),
                       c = random_tensor(dtype, {rows, 1}, 3, 9, 50);
      expect_matches_reference({Op::Concat, {a, b, c}, {{dtype, {rows, 106}}}, {-1}, {}}, 0);
      const Attrs attrs{{"begin", int64_t{7}}, {"size", int64_t{61}}};
      expect_matches_reference({Op::Slice, {b}, {{dtype, {rows, 61}}}, {-1}, attrs}, 0);
    }
  }
}

// Around the size of a piece, and nothing at all.
TEST(ShapeOps, ZeroAndCopyEveryByte) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32, DType::U8}) {
    for (const int64_t elems : {0, 1, 7, 300007}) {
      SCOPED_TRACE(fmt::format("{} [{}]", dtype_name(dtype), elems));
      const HostTensor x = random_tensor(dtype, {elems}, 1, 9, 50),
                       dst = random_tensor(dtype, {elems}, 2, 9, 50);
      expect_matches_reference({Op::Copy, {x}, {x.type}, {-1}, {}}, 0);
      expect_matches_reference({Op::Copy, {x, dst}, {x.type}, {1}, {}}, 0);
      EXPECT_EQ(run_fast({Op::Copy, {x, dst}, {x.type}, {1}, {}})[0].bytes, x.bytes);
      // The zeroed bytes are those of another input, so that they do not begin as zeros.
      const Call zeros{Op::Zeros, {x}, {x.type}, {0}, {}};
      for (const int num_threads : {1, 2, 4}) {
        EXPECT_EQ(run_fast(zeros, num_threads)[0], HostTensor(dtype, {elems})) << num_threads;
      }
      EXPECT_EQ(run(reference_kernel(Op::Zeros), zeros, pool_of(1))[0], HostTensor(dtype, {elems}));
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
