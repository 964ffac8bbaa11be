#include <cmath>

#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

HostTensor tensor_of(DType dtype, Shape shape, const std::vector<double>& values) {
  HostTensor tensor(dtype, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) cpu::ref::set(tensor.arg(), static_cast<int64_t>(i), values[i]);
  return tensor;
}

HostTensor some_targets(int64_t rows, int64_t vocab) {
  HostTensor targets(DType::I32, {rows});
  for (int64_t row = 0; row < rows; ++row)
    cpu::ref::set(targets.arg(), row, row % 5 == 3 ? -1 : static_cast<double>(row * 37 % vocab));
  return targets;
}

Call loss_of(const HostTensor& logits, const HostTensor& targets) {
  return {Op::CrossEntropy, {logits, targets}, {{DType::F64, {2}}}, {-1}, {}};
}

Call grad_of(const HostTensor& logits, const HostTensor& targets, double scale) {
  return {Op::CrossEntropyGrad,
          {logits, targets, tensor_of(DType::F32, {1}, {scale})},
          {logits.type, {DType::F64, {2}}},
          {0, -1},
          {}};
}

// Ragged rows, rows of whole 16-byte groups, both also long enough to be streamed, and some that are longer
// than what shared memory keeps of them.
constexpr std::pair<int64_t, int64_t> kShapes[] = {
    {1, 1},     {3, 2},     {7, 10},    {5, 17},    {300, 64},  {9, 2048},   {4, 4099},
    {11, 5000}, {8, 20001}, {2, 50257}, {8, 50257}, {3, 50304}, {2, 128256}, {1, 130001}};

template <typename Fn>
void for_logits(const Fn& fn) {
  for (const DType dtype : kStorage) {
    for (const auto& [rows, vocab] : kShapes) {
      SCOPED_TRACE(fmt::format("{} [{}, {}]", dtype_name(dtype), rows, vocab));
      fn(random_tensor(dtype, {rows, vocab}, 7, 3), some_targets(rows, vocab));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CudaCrossEntropy, MatchesTheReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for_logits([](const HostTensor& logits, const HostTensor& targets) {
    expect_as_reference(loss_of(logits, targets), 1e-6);
  });
}

TEST(CudaCrossEntropyGrad, MatchesTheReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for_logits([](const HostTensor& logits, const HostTensor& targets) {
    expect_as_reference(grad_of(logits, targets, 0.5), 1e-6);
  });
}

// Label smoothing and the z-loss, whose rows are never streamed.
TEST(CudaCrossEntropyGrad, MatchesTheReferenceWithTerms) {
  TANDEM_NEEDS_GPU();
  for_logits([](const HostTensor& logits, const HostTensor& targets) {
    for (const Attrs& attrs : {Attrs{{"smoothing", 0.1}}, Attrs{{"smoothing", 0.2}, {"z", 0.01}}}) {
      Call call = grad_of(logits, targets, 0.5);
      call.attrs = attrs;
      expect_as_reference(call, 2e-6);
    }
  });
}

// Two labels a row, now and then the same twice.
TEST(CudaCrossEntropyGrad, MatchesTheReferenceOfMixedRows) {
  TANDEM_NEEDS_GPU();
  for_logits([](const HostTensor& logits, const HostTensor& targets) {
    const int64_t rows = logits.type.shape.rows(), vocab = logits.type.shape.last();
    std::vector<double> partners, shares;
    for (int64_t row = 0; row < rows; ++row) {
      const auto own = targets.at(row);
      partners.push_back(own < 0 || row % 3 == 0 ? own : static_cast<double>(row * 11 % vocab));
      shares.push_back(0.5 + 0.5 * static_cast<double>(row % 7) / 7);
    }
    for (const Attrs& attrs : {Attrs{}, Attrs{{"smoothing", 0.2}, {"z", 0.01}}}) {
      Call call = grad_of(logits, targets, 0.5);
      call.attrs = attrs;
      call.in.push_back(tensor_of(DType::I32, {rows}, partners));
      call.in.push_back(tensor_of(DType::F32, {rows}, shares));
      expect_as_reference(call, 2e-6);
    }
  });
}

// More rows than blocks: requests for the next row run ahead of the one at work.
TEST(CudaCrossEntropyGrad, MatchesTheReferenceWhereABlockStreamsSeveralRows) {
  TANDEM_NEEDS_GPU();
  for (const auto& [rows, vocab] : {std::pair<int64_t, int64_t>{560, 17001}, {140, 66000}}) {
    SCOPED_TRACE(fmt::format("[{}, {}]", rows, vocab));
    expect_as_reference(
        grad_of(random_tensor(DType::BF16, {rows, vocab}, 7, 3), some_targets(rows, vocab), 256), 1e-5);
  }
}

// The largest logit moves through all places of a thread's groups, and of the row.
TEST(CudaCrossEntropy, CountsOnlyTheFirstOfEqualMaxima) {
  TANDEM_NEEDS_GPU();
  constexpr int64_t kVocab = 20000;
  for (const DType dtype : kStorage) {
    for (const int64_t first : {0, 1, 7, 8, 4095, 4096, 16385, 19998}) {
      std::vector<double> logits(3 * kVocab, 0.0);
      for (int64_t row = 0; row < 3; ++row) {
        logits[static_cast<size_t>(row * kVocab + first)] = 5;
        logits[static_cast<size_t>(row * kVocab + kVocab - 1)] = 5;
      }
      const HostTensor three = tensor_of(dtype, {3, kVocab}, logits);
      const HostTensor at =
          tensor_of(DType::I32, {3}, {double(first), kVocab - 1, double((first + 9) % kVocab)});
      EXPECT_EQ(run_on_gpu(loss_of(three, at))[0].at(1), 1) << dtype_name(dtype) << " " << first;
      EXPECT_EQ(run_on_gpu(grad_of(three, at, 1))[1].at(1), 1) << dtype_name(dtype) << " " << first;
    }
  }
}

TEST(CudaCrossEntropy, StandsHugeAndInfinitelySmallLogits) {
  TANDEM_NEEDS_GPU();
  const double lowest = -HUGE_VAL;
  const HostTensor logits = tensor_of(
      DType::F32, {3, 4}, {3e38, 3e38, -3e38, 0, lowest, 0, lowest, lowest, -1e30, -1e30, -2e30, lowest});
  const auto got = run_on_gpu(grad_of(logits, tensor_of(DType::I32, {3}, {0, 1, 1}), 1));
  expect_near(got[0], tensor_of(DType::F32, {3, 4}, {-0.5, 0.5, 0, 0, 0, 0, 0, 0, 0.5, -0.5, 0, 0}), 1e-6,
              "gradient");
  expect_near(got[1], tensor_of(DType::F64, {2}, {2 * std::log(2.0), 2}), 1e-6, "stats");
}

// 20000 logits are streamed.
TEST(CudaCrossEntropy, LetsANanThrough) {
  TANDEM_NEEDS_GPU();
  for (const int64_t vocab : {5000, 20000}) {
    for (const int64_t at : {int64_t{0}, int64_t{4097}, vocab - 1}) {
      std::vector<double> logits(static_cast<size_t>(vocab), -HUGE_VAL);
      logits[1] = 2;
      logits[static_cast<size_t>(at)] = std::nan("");
      const HostTensor row = tensor_of(DType::F32, {1, vocab}, logits);
      const HostTensor target = tensor_of(DType::I32, {1}, {1});
      EXPECT_TRUE(std::isnan(run_on_gpu(loss_of(row, target))[0].at(0))) << vocab << " " << at;
      EXPECT_TRUE(std::isnan(run_on_gpu(grad_of(row, target, 1))[1].at(0))) << vocab << " " << at;
    }
  }
}

TEST(CudaCrossEntropy, SaysNanForATargetThatIsNoClass) {
  TANDEM_NEEDS_GPU();
  for (const int64_t vocab : {3, 20000}) {
    const HostTensor row = random_tensor(DType::F32, {1, vocab}, 7);
    const HostTensor target = tensor_of(DType::I32, {1}, {static_cast<double>(vocab)});
    EXPECT_TRUE(std::isnan(run_on_gpu(loss_of(row, target))[0].at(0))) << vocab;
    EXPECT_TRUE(std::isnan(run_on_gpu(grad_of(row, target, 1))[1].at(0))) << vocab;
  }
}

struct Projection {
  DType dtype;
  int64_t rows, dim, vocab, chunk;
  std::string name() const {
    return fmt::format("{} rows {} dim {} vocab {} chunk {}", dtype_name(dtype), rows, dim, vocab, chunk);
  }
};

std::vector<Projection> projections() {
  std::vector<Projection> list;
  for (const DType dtype : kStorage) {
    list.push_back({dtype, 1, 1, 2, 1});
    list.push_back({dtype, 7, 5, 11, 3});
    list.push_back({dtype, 33, 64, 136, 16});
    list.push_back({dtype, 33, 64, 129, 100});
    list.push_back({dtype, 40, 48, 2056, 20});
    list.push_back({dtype, 33, 32, 20001, 20});  // streamed, with gaps between the rows
  }
  return list;
}

Call linear_loss(const Projection& p) {
  return {Op::LinearCrossEntropy,
          {random_tensor(p.dtype, {p.rows, p.dim}, 1), random_tensor(p.dtype, {p.vocab, p.dim}, 2, 0.3),
           some_targets(p.rows, p.vocab)},
          {{DType::F64, {2}}},
          {-1},
          {{"chunk", p.chunk}}};
}

Call linear_grad(const Projection& p, bool fresh) {
  Call call = linear_loss(p);
  call.op = Op::LinearCrossEntropyGrad;
  call.in.push_back(tensor_of(DType::F32, {1}, {0.5}));
  call.in.push_back(random_tensor(DType::F32, {p.vocab, p.dim}, 3));
  call.out = {call.in[0].type, {DType::F64, {2}}, call.in[4].type};
  call.shares = {-1, -1, 4};
  if (fresh) call.attrs.set("fresh", int64_t{1});
  return call;
}

// The logits and their gradient are rounded to the storage type on the way; a prediction may tip over.
double gradient_slack(DType dtype) { return dtype == DType::F32 ? 1e-5 : dtype == DType::BF16 ? 4e-2 : 6e-3; }
double stats_slack(DType dtype) { return dtype == DType::F32 ? 1e-4 : 1; }

void expect_near_reference(const Call& call, const Projection& p) {
  const std::vector<HostTensor> want = cpu::run(cpu::reference_kernel(call.op), call, cpu::pool_of(1));
  const std::vector<HostTensor> got = run_on_gpu(call);
  for (size_t k = 0; k < got.size(); ++k) {
    const bool stats = got[k].type.dtype == DType::F64;
    expect_near(got[k], want[k], stats ? stats_slack(p.dtype) : gradient_slack(p.dtype),
                fmt::format("output {}", k));
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_EQ(run_on_gpu(call), got) << "run again";
}

TEST(CudaLinearCrossEntropy, MatchesTheReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for (const Projection& p : projections()) {
    SCOPED_TRACE(p.name());
    expect_near_reference(linear_loss(p), p);
  }
}

TEST(CudaLinearCrossEntropyGrad, MatchesTheReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for (const Projection& p : projections()) {
    for (const bool fresh : {false, true}) {
      SCOPED_TRACE(fmt::format("{} fresh {}", p.name(), fresh));
      expect_near_reference(linear_grad(p, fresh), p);
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
