#include "tandem/kernels/cuda/kernel_test.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

struct Case {
  int64_t rows, cols;
  int64_t as_rows, as_columns;
};
constexpr Case kCases[] = {
    {16, 16, 1, 1}, {128, 128, 1, 1}, {144, 272, 1, 1}, {304, 96, 1, 0}, {32, 400, 0, 1}};

constexpr int64_t kSlots = 3, kSlot = 1;

HostTensor scales() {
  HostTensor tensor(DType::F32, Shape({kSlots, 4}));
  for (int64_t i = 0; i < 4 * kSlots; ++i)
    cpu::ref::set(tensor.arg(), i, std::ldexp(1.0, static_cast<int>(i / 4) - 8));
  return tensor;
}

// The op's own inputs, then scale and need; the tensor that is quantized is [rows, cols].
Call quantizing(Op op, std::vector<HostTensor> in, const Case& c, DType dtype, bool tracked = true) {
  Call call{op, std::move(in), {}, {}, {}};
  call.in.push_back(scales());
  if (c.as_rows != 0) call.out.push_back({dtype, Shape({c.rows, c.cols})});
  if (c.as_columns != 0) call.out.push_back({dtype, Shape({c.cols, c.rows})});
  call.shares.assign(call.out.size(), -1);
  if (tracked) {
    call.shares.push_back(static_cast<int>(call.in.size()));
    call.out.push_back({DType::F32, Shape({kSlots})});
    call.in.push_back(random_tensor(DType::F32, Shape({kSlots}), 3, 1e-4, 1e-3));
  }
  call.attrs = {{"slot", kSlot},
                {"dtype", std::string(dtype_name(dtype))},
                {"rows", c.as_rows},
                {"columns", c.as_columns}};
  return call;
}

// Every bit: the values are those of the reference, or a neighbour where the storage type's rounding
// differed.
void expect_same_fp8(const Call& call, int64_t most_different) {
  const auto want = cpu::run(cpu::reference_kernel(call.op), call, cpu::pool_of(1));
  const auto got = run_on_gpu(call);
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    if (!is_fp8(got[k].type.dtype)) {
      expect_near(got[k], want[k], 0, fmt::format("output {}", k));
      continue;
    }
    int64_t different = 0;
    for (size_t i = 0; i < got[k].bytes.size(); ++i) {
      if (got[k].bytes[i] == want[k].bytes[i]) continue;
      ++different;
      const auto index = static_cast<int64_t>(i);
      ASSERT_NEAR(got[k].at(index), want[k].at(index), 0.26 * std::abs(want[k].at(index)) + 1e-4)
          << "output " << k << " element " << i;
    }
    EXPECT_LE(different, most_different) << "output " << k;
  }
  EXPECT_EQ(run_on_gpu(call), got) << "run again";
}

TEST(CudaFp8, QuantizesAsItIsAndTransposed) {
  TANDEM_NEEDS_GPU();
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::F8E4M3, DType::F8E5M2}) {
      for (const bool tracked : {true, false}) {
        SCOPED_TRACE(fmt::format("[{}, {}] {}", c.rows, c.cols, dtype_name(dtype)));
        const HostTensor x = random_tensor(DType::BF16, Shape({c.rows, c.cols}), 1, 3);
        expect_same_fp8(quantizing(Op::Fp8Quantize, {x}, c, dtype, tracked), 0);
      }
    }
  }
}

TEST(CudaFp8, KeepsToTheLargestFiniteValueAndTellsWhatItWouldNeed) {
  TANDEM_NEEDS_GPU();
  const Case c{16, 16, 1, 1};
  const HostTensor x = random_tensor(DType::BF16, Shape({c.rows, c.cols}), 1, 1e6);
  expect_same_fp8(quantizing(Op::Fp8Quantize, {x}, c, DType::F8E4M3), 0);
}

TEST(CudaFp8, SwigluEndsInQuantizing) {
  TANDEM_NEEDS_GPU();
  for (const Case& c : kCases) {
    SCOPED_TRACE(fmt::format("[{}, {}]", c.rows, c.cols));
    const HostTensor gate_up = random_tensor(DType::BF16, Shape({c.rows, 2 * c.cols}), 1);
    expect_same_fp8(quantizing(Op::Fp8Swiglu, {gate_up}, c, DType::F8E4M3), c.rows * c.cols / 50 + 1);
  }
}

TEST(CudaFp8, SwigluGradEndsInQuantizing) {
  TANDEM_NEEDS_GPU();
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  cases.push_back({48, 40, 1, 1});  // half of its columns are no multiple of 16
  for (Case c : cases) {
    SCOPED_TRACE(fmt::format("[{}, {}]", c.rows, c.cols));
    c.cols *= 2;
    const HostTensor gate_up = random_tensor(DType::BF16, Shape({c.rows, c.cols}), 1);
    const HostTensor dy = random_tensor(DType::BF16, Shape({c.rows, c.cols / 2}), 2);
    expect_same_fp8(quantizing(Op::Fp8SwigluGrad, {dy, gate_up}, c, DType::F8E5M2), c.rows * c.cols / 50 + 1);
  }
}

TEST(CudaFp8, QuantizingInOneOpOrTwoGivesTheSameBits) {
  TANDEM_NEEDS_GPU();
  const Case c{144, 272, 1, 1};
  const HostTensor gate_up = random_tensor(DType::BF16, Shape({c.rows, 2 * c.cols}), 1);
  const Call alone{Op::Swiglu, {gate_up}, {{DType::BF16, Shape({c.rows, c.cols})}}, {-1}, {}};
  const HostTensor y = run_on_gpu(alone)[0];
  EXPECT_EQ(run_on_gpu(quantizing(Op::Fp8Swiglu, {gate_up}, c, DType::F8E4M3)),
            run_on_gpu(quantizing(Op::Fp8Quantize, {y}, c, DType::F8E4M3)));
  const Call grad{Op::SwigluGrad, {y, gate_up}, {gate_up.type}, {-1}, {}};
  const HostTensor dgate_up = run_on_gpu(grad)[0];
  const Case wide{c.rows, 2 * c.cols, 1, 1};
  EXPECT_EQ(run_on_gpu(quantizing(Op::Fp8SwigluGrad, {y, gate_up}, wide, DType::F8E5M2)),
            run_on_gpu(quantizing(Op::Fp8Quantize, {dgate_up}, wide, DType::F8E5M2)));
}

TEST(CudaFp8, ScalesArePowersOfTwo) {
  TANDEM_NEEDS_GPU();
  HostTensor range(DType::F32, Shape({5}));
  const double values[] = {0, 1, 0.3, 5e-7, 1e30};
  for (int64_t i = 0; i < 5; ++i) cpu::ref::set(range.arg(), i, values[i]);
  expect_as_reference(
      {Op::Fp8Scales, {range}, {{DType::F32, Shape({5, 4})}}, {-1}, {{"unknown", int64_t{-5}}}}, 0);
}

TEST(CudaFp8, WeightScalesFollowTheLargestOfEach) {
  TANDEM_NEEDS_GPU();
  Call call{Op::Fp8WeightScales, {}, {{DType::F32, Shape({3, 4})}}, {-1}, {}};
  call.in.push_back(random_tensor(DType::BF16, Shape({48, 352}), 1, 0.02));
  call.in.push_back(random_tensor(DType::BF16, Shape({16, 16}), 2, 30));
  call.in.push_back(HostTensor(DType::BF16, Shape({16, 16})));  // zeros
  expect_as_reference(call, 0);
}

TEST(CudaFp8, RangesFollowUpAtOnceAndDownSlowly) {
  TANDEM_NEEDS_GPU();
  Call call{Op::Fp8Ranges, {}, {}, {0, 1}, {}};
  HostTensor range(DType::F32, Shape({4})), need(DType::F32, Shape({4}));
  const double ranges[] = {1, 1, 2, 0}, needs[] = {0.5, 3, INFINITY, 0};
  for (int64_t i = 0; i < 4; ++i) {
    cpu::ref::set(range.arg(), i, ranges[i]);
    cpu::ref::set(need.arg(), i, needs[i]);
  }
  call.in = {range, need};
  call.out = {range.type, need.type};
  expect_as_reference(call, 0);
}

// What ranks that hold parts of weights do (fsdp).
TEST(CudaFp8, ScalesOfPartsAreThoseOfTheLargest) {
  TANDEM_NEEDS_GPU();
  Call ranges{Op::Fp8WeightScales, {}, {{DType::F32, Shape({3})}}, {-1}, {}};
  ranges.in.push_back(random_tensor(DType::BF16, Shape({480}), 1, 0.02));
  ranges.in.push_back(random_tensor(DType::BF16, Shape({32}), 2, 30));
  ranges.attrs = {{"slots", "2,0"}, {"num_slots", int64_t{3}}};
  expect_as_reference(ranges, 0);
  HostTensor gathered(DType::F32, Shape({6}));
  const double values[] = {0, 1, 0.3, 0, 2.5, 1e-3};
  for (int64_t i = 0; i < 6; ++i) cpu::ref::set(gathered.arg(), i, values[i]);
  expect_as_reference({Op::Fp8Scales,
                       {gathered},
                       {{DType::F32, Shape({3, 4})}},
                       {-1},
                       {{"unknown", int64_t{0}}, {"parts", int64_t{2}}}},
                      0);
}

TEST(CudaFp8, PiecesThatAreTurnedLaterHaveTheBitsOfTheWhole) {
  TANDEM_NEEDS_GPU();
  const Case columns{144, 272, 0, 1};
  const HostTensor x = random_tensor(DType::BF16, Shape({columns.rows, columns.cols}), 1, 3);
  const int64_t elems = columns.rows * columns.cols, cut = 4096 + 32;
  HostTensor flat = x;
  flat.type.shape = Shape({elems});
  Call pieces{Op::Fp8Quantize, {flat, scales()}, {{DType::F8E4M3, Shape({elems})}}, {-1}, {}};
  pieces.attrs = {{"pieces", fmt::format("{0}:0:{1},{0}:{1}:{2}", kSlot, cut, elems - cut)},
                  {"dtype", std::string(dtype_name(DType::F8E4M3))},
                  {"rows", int64_t{1}},
                  {"columns", int64_t{0}}};
  expect_same_fp8(pieces, 0);
  HostTensor q = run_on_gpu(pieces)[0];
  q.type.shape = x.type.shape;
  EXPECT_EQ(run_on_gpu(quantizing(Op::Fp8Quantize, {q}, columns, DType::F8E4M3, false)),
            run_on_gpu(quantizing(Op::Fp8Quantize, {x}, columns, DType::F8E4M3, false)));
}

TEST(CudaFp8, RangesAreThoseOfAllRanks) {
  TANDEM_NEEDS_GPU();
  Call call{Op::Fp8Ranges, {}, {}, {0, 1}, {}};
  call.in = {random_tensor(DType::F32, Shape({5}), 1, 0.1, 1),
             random_tensor(DType::F32, Shape({5}), 2, 0.5, 1),
             random_tensor(DType::F32, Shape({15}), 3, 0.5, 1)};
  call.out = {call.in[0].type, call.in[1].type};
  expect_as_reference(call, 0);
}

HostTensor random_fp8(DType dtype, Shape shape, uint64_t stream) {
  return random_tensor(dtype, std::move(shape), stream, 2);
}

// The matrix units keep about 13 bits of a sum of 8-bit products; here each is about 4 * 2^scale.
double sum_error(int64_t k, int scale) {
  return std::sqrt(static_cast<double>(k)) * std::ldexp(4.0, scale) * std::ldexp(1.0, -6);
}

Call product(DType left, DType out, int64_t m, int64_t n, int64_t k, bool bias) {
  Call call{
      Op::Fp8Matmul,
      {random_fp8(left, Shape({m, k}), 1), random_fp8(DType::F8E4M3, Shape({n, k}), 2), scales(), scales()},
      {{out, Shape({m, n})}},
      {-1},
      {{"slot_a", int64_t{1}}, {"slot_b", int64_t{2}}, {"dtype", std::string(dtype_name(out))}}};
  if (bias) call.in.push_back(random_tensor(DType::BF16, Shape({n}), 3, 0.1));
  return call;
}

// Known without a GPU: a plan is made on any machine.
TEST(CudaFp8, HasEveryProductOfATensorAxis) {
  const KernelRegistry kernels = all_kernels();
  for (const DType out : {DType::BF16, DType::F32}) {
    for (const bool bias : {false, true}) {
      const Call call = product(DType::F8E4M3, out, 32, 48, 16, bias);
      EXPECT_NO_THROW(kernels.choose(call.signature()));
    }
  }
}

TEST(CudaFp8, ProductsMatchTheReference) {
  TANDEM_NEEDS_GPU();
  const int64_t shapes[][3] = {{16, 16, 16}, {128, 256, 64}, {272, 144, 304}, {64, 128, 1024}};
  for (const auto& [m, n, k] : shapes) {
    for (const DType left : {DType::F8E4M3, DType::F8E5M2}) {
      for (const DType out : {DType::BF16, DType::F32}) {  // fp32: partial sums of the tensor axis
        for (const bool bias : {false, true}) {
          SCOPED_TRACE(fmt::format("{} x {} x {} {} to {}", m, n, k, dtype_name(left), dtype_name(out)));
          expect_as_reference(product(left, out, m, n, k, bias), sum_error(k, -13));
        }
      }
    }
  }
}

TEST(CudaFp8, WeightGradientsAddUpOrStartAnew) {
  TANDEM_NEEDS_GPU();
  for (const DType acc : {DType::F32, DType::BF16}) {
    for (const bool fresh : {false, true}) {
      const int64_t m = 144, n = 272, k = 512;
      Call call{Op::Fp8MatmulAcc,
                {random_tensor(acc, Shape({m, n}), 4, 0.01), random_fp8(DType::F8E5M2, Shape({m, k}), 1),
                 random_fp8(DType::F8E4M3, Shape({n, k}), 2), scales(), scales()},
                {{acc, Shape({m, n})}},
                {0},
                {{"slot_a", int64_t{0}}, {"slot_b", int64_t{1}}}};
      if (fresh) call.attrs.set("fresh", int64_t{1});
      expect_as_reference(call, sum_error(k, -15));
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
