// Every test runs the three ops as ranks would: each on its columns, with all parts between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/rng.h"
#include "tandem/kernels/cpu/conv/image_kernels_test.h"
#include "tandem/kernels/cpu/pointwise/pointwise_test.h"

namespace tandem::cpu {
namespace {

struct Problem {
  DType dtype;
  int64_t rows, vocab;
  std::vector<double> logits, targets;
};

Problem random_problem(DType dtype, int64_t rows, int64_t vocab) {
  Problem p{dtype, rows, vocab, {}, {}};
  const Rng rng(3, 0);
  for (int64_t i = 0; i < rows * vocab; ++i)
    p.logits.push_back(12 * rng.uniform(static_cast<uint64_t>(i)) - 6);
  for (int64_t row = 0; row < rows; ++row)
    p.targets.push_back(row % 5 == 3 ? -1 : static_cast<double>(row * 37 % vocab));
  return p;
}

struct Loss {
  std::vector<double> gradient, stats;
};

enum class Kernels { Reference, Fast };

KernelRun& run_with(KernelRun& run, Kernels kernels, Op op) {
  static const KernelRegistry registry = all_kernels();
  return kernels == Kernels::Reference ? run.run_reference()
                                       : run.run(registry, "cpu." + std::string(op_name(op)));
}

Loss whole_loss(const Problem& p, Kernels kernels) {
  KernelRun run(Op::CrossEntropyGrad);
  run.in(p.dtype, {p.rows, p.vocab}, p.logits).in(DType::I32, {p.rows}, p.targets).in(DType::F32, {1}, {0.5});
  run_with(run.in_place_out().out({2}), kernels, Op::CrossEntropyGrad);
  return {run.result(0), run.result(1)};
}

// Columns of rank `rank`: its ids, and padding where the vocabulary does not divide.
struct Shard {
  int64_t first, valid, width;
};
Shard shard_of(const Problem& p, int64_t size, int64_t rank) {
  const int64_t few = p.vocab / size, more = p.vocab % size;
  return {.first = rank * few + std::min(rank, more),
          .valid = few + (rank < more ? 1 : 0),
          .width = more == 0 ? few : (few / 8 + 1) * 8};
}

// Logits behind the valid ones are larger than any: they would be seen in every result.
std::vector<double> columns_of(const Problem& p, const Shard& shard) {
  std::vector<double> columns;
  for (int64_t row = 0; row < p.rows; ++row) {
    const auto begin = p.logits.begin() + row * p.vocab + shard.first;
    columns.insert(columns.end(), begin, begin + shard.valid);
    columns.insert(columns.end(), static_cast<size_t>(shard.width - shard.valid), 9.0);
  }
  return columns;
}

Attrs attrs_of(const Shard& shard) {
  Attrs attrs{{"first", shard.first}};
  if (shard.valid < shard.width) attrs.set("valid", shard.valid);
  return attrs;
}

KernelRun parts_run(const Problem& p, int64_t size, int64_t rank) {
  const Shard shard = shard_of(p, size, rank);
  KernelRun run(Op::VocabParts, attrs_of(shard));
  run.in(p.dtype, {p.rows, shard.width}, columns_of(p, shard)).in(DType::I32, {p.rows}, p.targets);
  run.out(DType::F32, {p.rows, 4});
  return run;
}

std::vector<double> all_parts(const Problem& p, int64_t size, Kernels kernels) {
  std::vector<double> parts;
  for (int64_t rank = 0; rank < size; ++rank) {
    KernelRun run = parts_run(p, size, rank);
    const auto part = run_with(run, kernels, Op::VocabParts).result(0);
    parts.insert(parts.end(), part.begin(), part.end());
  }
  return parts;
}

KernelRun loss_run(const Problem& p, int64_t size, const std::vector<double>& parts) {
  KernelRun run(Op::VocabLoss, {{"size", size}});
  run.in(DType::F32, {size * p.rows, 4}, parts).in(DType::I32, {p.rows}, p.targets).out({2});
  return run;
}

KernelRun grad_run(const Problem& p, int64_t size, int64_t rank, const std::vector<double>& parts) {
  const Shard shard = shard_of(p, size, rank);
  Attrs attrs = attrs_of(shard);
  attrs.set("size", size);
  KernelRun run(Op::VocabLossGrad, attrs);
  run.in(p.dtype, {p.rows, shard.width}, columns_of(p, shard)).in(DType::I32, {p.rows}, p.targets);
  run.in(DType::F32, {size * p.rows, 4}, parts).in(DType::F32, {1}, {0.5}).in_place_out().out({2});
  return run;
}

// The whole loss, from `size` ranks; fails where ranks disagree about the statistics.
Loss split_loss(const Problem& p, int64_t size, Kernels kernels) {
  const std::vector<double> parts = all_parts(p, size, kernels);
  KernelRun loss = loss_run(p, size, parts);
  Loss joined{std::vector<double>(p.logits.size()), run_with(loss, kernels, Op::VocabLoss).result(0)};
  for (int64_t rank = 0; rank < size; ++rank) {
    const Shard shard = shard_of(p, size, rank);
    KernelRun run = grad_run(p, size, rank, parts);
    const auto gradient = run_with(run, kernels, Op::VocabLossGrad).result(0);
    if (std::isfinite(joined.stats[0])) {
      EXPECT_EQ(run.result(1), joined.stats) << "rank " << rank;
    }
    for (int64_t row = 0; row < p.rows; ++row) {
      const auto own = gradient.begin() + row * shard.width;
      std::copy_n(own, shard.valid, joined.gradient.begin() + row * p.vocab + shard.first);
      EXPECT_TRUE(std::all_of(own + shard.valid, own + shard.width, [](double x) { return x == 0; }));
    }
  }
  return joined;
}

const std::vector<std::pair<int64_t, int64_t>> kShapes = {{1, 12},   {7, 24},    {300, 60}, {5, 204},
                                                          {3, 8400}, {2, 50257}, {4, 5},    {9, 131}};

class VocabLoss : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Storage, VocabLoss, testing::Values(DType::F32, DType::BF16, DType::F16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(VocabLoss, MatchesReferenceForAnyNumberOfThreads) {
  for (auto [rows, vocab] : kShapes) {
    const Problem p = random_problem(GetParam(), rows, vocab);
    for (int64_t size : {1, 3}) {
      SCOPED_TRACE(fmt::format("{} x {} over {}", rows, vocab, size));
      const auto parts = all_parts(p, size, Kernels::Reference);
      expect_matches_reference(loss_run(p, size, parts), "cpu.vocab_loss", 1e-6);
      for (int64_t rank = 0; rank < size; ++rank) {
        expect_matches_reference(parts_run(p, size, rank), "cpu.vocab_parts", 1e-6);
        expect_matches_reference(grad_run(p, size, rank, parts), "cpu.vocab_loss_grad",
                                 GetParam() == DType::F32 ? 5e-7 : storage_tolerance(GetParam()));
      }
    }
  }
}

TEST_P(VocabLoss, OfColumnsOnSeveralRanksIsTheWholeLoss) {
  for (Kernels kernels : {Kernels::Reference, Kernels::Fast}) {
    for (auto [rows, vocab] : kShapes) {
      const Problem p = random_problem(GetParam(), rows, vocab);
      const Loss whole = whole_loss(p, kernels);
      for (int64_t size : {1, 2, 3, 4}) {
        SCOPED_TRACE(fmt::format("{} x {} over {}", rows, vocab, size));
        const Loss split = split_loss(p, size, kernels);
        EXPECT_NEAR(split.stats[0] / whole.stats[0], 1, 1e-6);
        EXPECT_EQ(split.stats[1], whole.stats[1]);
        // Where two nearly equal values round apart, they differ by one last place.
        expect_near(split.gradient, whole.gradient,
                    GetParam() == DType::F32    ? 1e-6
                    : GetParam() == DType::BF16 ? 4e-3
                                                : 5e-4);
      }
    }
  }
}

TEST(VocabLoss, IsTheWholeLossOnEveryInstructionSet) {
  for_each_target([] {
    for (DType dtype : kStorage) {
      const Problem p = random_problem(dtype, 3, 8400);
      const Loss whole = whole_loss(p, Kernels::Reference), split = split_loss(p, 3, Kernels::Fast);
      EXPECT_NEAR(split.stats[0] / whole.stats[0], 1, 1e-6);
      EXPECT_EQ(split.stats[1], whole.stats[1]);
      expect_near(split.gradient, whole.gradient, dtype == DType::F32 ? 1e-6 : storage_tolerance(dtype));
    }
  });
}

TEST(VocabLoss, PredictsTheSmallestOfEqualMaxima) {
  for (Kernels kernels : {Kernels::Reference, Kernels::Fast}) {
    for (auto [target, correct] : {std::pair{40, 1.0}, {50, 0.0}, {60, 0.0}, {0, 0.0}}) {
      Problem p{DType::F32, 1, 72, std::vector<double>(72, 0.0), {static_cast<double>(target)}};
      p.logits[40] = p.logits[50] = p.logits[60] = 5;
      for (int64_t size : {1, 2, 3, 4}) {
        EXPECT_EQ(split_loss(p, size, kernels).stats[1], correct) << target << " of " << size;
      }
    }
  }
}

TEST(VocabLoss, StandsHugeAndInfinitelySmallLogits) {
  const double lowest = -HUGE_VAL;
  for (Kernels kernels : {Kernels::Reference, Kernels::Fast}) {
    // In the second row one rank has nothing but -inf.
    const Problem p{DType::F32,
                    3,
                    4,
                    {3e38, 3e38, -3e38, 0, lowest, lowest, 0, lowest, -1e30, -2e30, -1e30, -2e30},
                    {0, 2, 2}};
    for (int64_t size : {1, 2}) {
      const Loss loss = split_loss(p, size, kernels);
      expect_near(loss.gradient, {-0.25, 0.25, 0, 0, 0, 0, 0, 0, 0.25, 0, -0.25, 0}, 1e-6);
      expect_near(loss.stats, {2 * std::log(2.0), 2}, 1e-6);
    }
  }
}

TEST(VocabLoss, LetsANanThroughWhicheverRankHasIt) {
  for (Kernels kernels : {Kernels::Reference, Kernels::Fast}) {
    for (size_t at : {size_t{0}, size_t{5}, size_t{11}}) {
      Problem p{DType::F32, 1, 12, std::vector<double>(12, 1.0), {7}};
      p.logits[at] = std::nan("");
      for (int64_t size : {1, 2, 3}) EXPECT_TRUE(std::isnan(split_loss(p, size, kernels).stats[0])) << at;
    }
  }
}

TEST(VocabLoss, RefusesATargetOutsideTheVocabulary) {
  Problem p{DType::F32, 1, 4, {1, 2, 3, 4}, {4}};
  const auto parts = all_parts(p, 2, Kernels::Fast);
  EXPECT_THROW(grad_run(p, 2, 0, parts).run(all_kernels(), "cpu.vocab_loss_grad"), BugError);
}

TEST(VocabLoss, LeavesDoublesToTheReference) {
  const Problem p{DType::F64, 1, 2, {1, 2}, {0}};
  EXPECT_FALSE(parts_run(p, 1, 0).supported_by(all_kernels(), "cpu.vocab_parts"));
  EXPECT_FALSE(grad_run(p, 1, 0, {1, 1, 1, 1}).supported_by(all_kernels(), "cpu.vocab_loss_grad"));
}

}  // namespace
}  // namespace tandem::cpu
