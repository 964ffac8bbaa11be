// The three ops as ranks would run them: each on its columns, with all parts between them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

HostTensor some_targets(int64_t rows, int64_t vocab) {
  HostTensor targets(DType::I32, {rows});
  for (int64_t row = 0; row < rows; ++row)
    cpu::ref::set(targets.arg(), row, row % 5 == 3 ? -1 : static_cast<double>(row * 37 % vocab));
  return targets;
}

HostTensor scale_of(double value) {
  HostTensor scale(DType::F32, {1});
  cpu::ref::set(scale.arg(), 0, value);
  return scale;
}

// A loss over `size` ranks, of which each has `width` columns: its ids, and padding where the vocabulary does
// not divide.
struct Problem {
  HostTensor logits, targets;
  int64_t size;

  int64_t rows() const { return logits.type.shape.rows(); }
  int64_t vocab() const { return logits.type.shape.last(); }
  int64_t width() const { return vocab() % size == 0 ? vocab() / size : (vocab() / size / 8 + 1) * 8; }
  int64_t first(int64_t rank) const { return rank * (vocab() / size) + std::min(rank, vocab() % size); }
  int64_t valid(int64_t rank) const { return first(rank + 1) - first(rank); }
  Attrs attrs(int64_t rank) const {
    Attrs attrs{{"first", first(rank)}};
    if (valid(rank) < width()) attrs.set("valid", valid(rank));
    return attrs;
  }
};

// Logits behind the valid ones are larger than any: they would be seen in every result.
HostTensor columns_of(const Problem& p, int64_t rank) {
  HostTensor columns(p.logits.type.dtype, {p.rows(), p.width()});
  for (int64_t row = 0; row < p.rows(); ++row) {
    for (int64_t i = 0; i < p.width(); ++i) {
      const double logit = i < p.valid(rank) ? p.logits.at(row * p.vocab() + p.first(rank) + i) : 9;
      cpu::ref::set(columns.arg(), row * p.width() + i, logit);
    }
  }
  return columns;
}

Call parts_call(const Problem& p, int64_t rank) {
  return {
      Op::VocabParts, {columns_of(p, rank), p.targets}, {{DType::F32, {p.rows(), 4}}}, {-1}, p.attrs(rank)};
}

HostTensor all_parts(const Problem& p) {
  HostTensor parts(DType::F32, {p.size * p.rows(), 4});
  for (int64_t rank = 0; rank < p.size; ++rank) {
    const HostTensor part = run_on_gpu(parts_call(p, rank))[0];
    std::copy(part.bytes.begin(), part.bytes.end(),
              parts.bytes.begin() + rank * static_cast<int64_t>(part.bytes.size()));
  }
  return parts;
}

Call loss_call(const Problem& p, const HostTensor& parts) {
  return {Op::VocabLoss, {parts, p.targets}, {{DType::F64, {2}}}, {-1}, {{"size", p.size}}};
}

Call grad_call(const Problem& p, const HostTensor& parts, int64_t rank) {
  const HostTensor columns = columns_of(p, rank);
  Attrs attrs = p.attrs(rank);
  attrs.set("size", p.size);
  return {Op::VocabLossGrad,
          {columns, p.targets, parts, scale_of(0.5)},
          {columns.type, {DType::F64, {2}}},
          {0, -1},
          attrs};
}

constexpr std::pair<int64_t, int64_t> kShapes[] = {{1, 12},    {7, 24},    {300, 60},   {5, 204},   {3, 8400},
                                                   {2, 50256}, {2, 50304}, {1, 144000}, {2, 50257}, {9, 131}};

template <typename Fn>
void for_problems(const Fn& fn) {
  for (const DType dtype : kStorage) {
    for (const auto& [rows, vocab] : kShapes) {
      for (const int64_t size : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{} [{}, {}] over {}", dtype_name(dtype), rows, vocab, size));
        fn(Problem{random_tensor(dtype, {rows, vocab}, 7, 3), some_targets(rows, vocab), size});
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CudaVocabLoss, MatchesTheReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for_problems([](const Problem& p) {
    const HostTensor parts = all_parts(p);
    expect_as_reference(loss_call(p, parts), 1e-6);
    for (int64_t rank = 0; rank < p.size; ++rank) {
      const Call call = parts_call(p, rank);
      // -inf where the target is elsewhere: compared as bits.
      const HostTensor want = cpu::run(cpu::reference_kernel(call.op), call, cpu::pool_of(1))[0];
      const HostTensor got = run_on_gpu(call)[0];
      for (int64_t i = 0; i < got.type.shape.elems(); ++i) {
        if (std::isinf(want.at(i))) {
          ASSERT_EQ(got.at(i), want.at(i)) << i;
        } else {
          ASSERT_NEAR(got.at(i), want.at(i), 4e-6 * std::abs(want.at(i))) << i;
        }
      }
      EXPECT_EQ(run_on_gpu(call)[0], got) << "run again";
      expect_as_reference(grad_call(p, parts, rank), 1e-6);
    }
  });
}

TEST(CudaVocabLoss, OfColumnsOnSeveralRanksIsTheWholeLoss) {
  TANDEM_NEEDS_GPU();
  for_problems([](const Problem& p) {
    const HostTensor whole =
        run_on_gpu({Op::CrossEntropy, {p.logits, p.targets}, {{DType::F64, {2}}}, {-1}, {}})[0];
    const HostTensor parts = all_parts(p), split = run_on_gpu(loss_call(p, parts))[0];
    EXPECT_NEAR(split.at(0), whole.at(0), 1e-6 * (1 + whole.at(0)));
    EXPECT_EQ(split.at(1), whole.at(1));
    for (int64_t rank = 0; rank < p.size; ++rank)
      EXPECT_EQ(run_on_gpu(grad_call(p, parts, rank))[1], split) << "rank " << rank;
  });
}

TEST(CudaVocabLoss, PredictsTheSmallestOfEqualMaxima) {
  TANDEM_NEEDS_GPU();
  for (const auto& [target, correct] : {std::pair{40, 1.0}, {50, 0.0}, {60, 0.0}, {0, 0.0}}) {
    for (const int64_t size : {1, 2, 3, 4}) {
      Problem p{HostTensor(DType::F32, {1, 72}), HostTensor(DType::I32, {1}), size};
      for (const int64_t column : {40, 50, 60}) cpu::ref::set(p.logits.arg(), column, 5);
      cpu::ref::set(p.targets.arg(), 0, target);
      EXPECT_EQ(run_on_gpu(loss_call(p, all_parts(p)))[0].at(1), correct) << target << " of " << size;
    }
  }
}

TEST(CudaVocabLoss, StandsARankWithNothingButInfinitelySmallLogits) {
  TANDEM_NEEDS_GPU();
  Problem p{HostTensor(DType::F32, {1, 8}), HostTensor(DType::I32, {1}), 2};
  for (int64_t column = 0; column < 8; ++column)
    cpu::ref::set(p.logits.arg(), column, column == 5 || column == 6 ? 1 : -HUGE_VAL);
  cpu::ref::set(p.targets.arg(), 0, 5);
  const HostTensor parts = all_parts(p);
  EXPECT_NEAR(run_on_gpu(loss_call(p, parts))[0].at(0), std::log(2.0), 1e-6);
  for (int64_t rank = 0; rank < 2; ++rank) {
    const HostTensor gradient = run_on_gpu(grad_call(p, parts, rank))[0];
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_NEAR(gradient.at(i), rank == 1 && i == 1 ? -0.25 : rank == 1 && i == 2 ? 0.25 : 0, 1e-6) << i;
  }
}

}  // namespace
}  // namespace tandem::cuda
