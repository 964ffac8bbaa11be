#include "tandem/kernels/cpu/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/gemm/gemm_engine.h"

namespace tandem::cpu {
namespace {

std::vector<Isa> levels_here() {
  std::vector<Isa> levels;
  for (Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16, Isa::Amx}) {
    if (isa <= detected_isa()) levels.push_back(isa);
  }
  return levels;
}

double read(const void* data, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::BF16: return to_float(static_cast<const BFloat16*>(data)[at]);
    case DType::F16: return to_float(static_cast<const Half*>(data)[at]);
    default: return static_cast<const float*>(data)[at];
  }
}

void write(void* data, DType dtype, int64_t at, float value) {
  switch (dtype) {
    case DType::BF16: static_cast<BFloat16*>(data)[at] = to_bfloat16(value); break;
    case DType::F16: static_cast<Half*>(data)[at] = to_half(value); break;
    default: static_cast<float*>(data)[at] = value; break;
  }
}

// Exactly as many bytes as the values need, so that the address sanitizer sees any read or write outside.
using Bytes = std::vector<std::byte>;

Bytes random_values(int64_t elems, DType dtype, uint32_t seed) {
  Bytes bytes(static_cast<size_t>(elems * dtype_bytes(dtype)));
  for (int64_t i = 0; i < elems; ++i) {
    seed = seed * 1664525u + 1013904223u;
    write(bytes.data(), dtype, i, static_cast<float>(seed >> 8) / (1 << 23) - 1.0f);
  }
  return bytes;
}

struct Workspace {
  explicit Workspace(size_t bytes)
      : data(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64))), size(bytes) {
    std::memset(data, 0xff, size);  // NaN in every type: stale scratch must not leak into results
  }
  ~Workspace() { std::free(data); }
  std::span<std::byte> span() const { return {data, size}; }
  std::byte* data;
  size_t size;
};

struct Case {
  int64_t m, n, k;
  DType dtype = DType::F32;  // of A, B, bias
  DType c_dtype = DType::F32;
  bool trans_a = false, trans_b = false;
  bool accumulate = false, bias = false, gelu = false;
  Isa isa = Isa::Portable;
};

std::string describe(const Case& c) {
  return fmt::format("{} x {} x {} {}->{} {}{}{}{}{} on {}", c.m, c.n, c.k, dtype_name(c.dtype),
                     dtype_name(c.c_dtype), c.trans_a ? 'T' : 'N', c.trans_b ? 'T' : 'N',
                     c.accumulate ? " acc" : "", c.bias ? " bias" : "", c.gelu ? " gelu" : "",
                     isa_name(c.isa));
}

constexpr int64_t kLdcExtra = 3;  // columns of C that the product must leave alone

struct Result {
  Bytes c, pre;
};

GemmArgs make_args(const Case& t, const Bytes& a, const Bytes& b, const Bytes& bias, Result& result) {
  GemmArgs args;
  args.m = t.m;
  args.n = t.n;
  args.k = t.k;
  args.a = {a.data(), t.dtype, t.trans_a ? 1 : t.k, t.trans_a ? t.m : 1};
  args.b = {b.data(), t.dtype, t.trans_b ? 1 : t.n, t.trans_b ? t.k : 1};
  args.ldc = t.n + kLdcExtra;
  args.c_dtype = t.c_dtype;
  args.accumulate = t.accumulate;
  args.isa = t.isa;
  const int64_t c_elems = (t.m - 1) * args.ldc + t.n;
  result.c = random_values(c_elems, t.c_dtype, 77);
  args.c = result.c.data();
  if (t.bias) args.bias = bias.data();
  if (t.gelu) {
    result.pre = random_values(c_elems, t.c_dtype, 78);
    args.pre = result.pre.data();
  }
  return args;
}

double gelu_of(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double tolerance(DType dtype) {
  if (dtype == DType::BF16) return 1.0 / 256;
  return dtype == DType::F16 ? 1.0 / 2048 : 2e-6;
}

// Against a triple loop in double over the same (rounded) operands.
void expect_matches_reference(const Case& t) {
  SCOPED_TRACE(describe(t));
  const Bytes a = random_values(t.m * t.k, t.dtype, 1), b = random_values(t.k * t.n, t.dtype, 2);
  const Bytes bias = random_values(t.n, t.dtype, 3);
  Result result;
  const GemmArgs args = make_args(t, a, b, bias, result);
  const Bytes before = result.c;
  const Workspace workspace(gemm_workspace({t.m, t.n, t.k, t.dtype, t.dtype, t.c_dtype, t.isa}, 2));
  ThreadPool pool(2);
  gemm(args, workspace.span(), pool);
  for (int64_t i = 0; i < t.m; ++i) {
    for (int64_t j = 0; j < t.n; ++j) {
      double sum = t.accumulate ? read(before.data(), t.c_dtype, i * args.ldc + j) : 0;
      double magnitude = 1;
      for (int64_t p = 0; p < t.k; ++p) {
        const double product = read(a.data(), t.dtype, t.trans_a ? p * t.m + i : i * t.k + p) *
                               read(b.data(), t.dtype, t.trans_b ? j * t.k + p : p * t.n + j);
        sum += product;
        magnitude += std::abs(product);
      }
      if (t.bias) sum += read(bias.data(), t.dtype, j);
      const double rounding = 1e-6 * magnitude;  // of fp32 sums
      double expected = sum;
      if (t.gelu) {
        const double pre = read(result.pre.data(), t.c_dtype, i * args.ldc + j);
        ASSERT_NEAR(pre, sum, rounding + tolerance(t.c_dtype) * std::abs(sum)) << "pre " << i << "," << j;
        expected = gelu_of(pre);
      }
      const double bound = (t.gelu ? 1e-6 : rounding) + tolerance(t.c_dtype) * std::abs(expected);
      ASSERT_NEAR(read(result.c.data(), t.c_dtype, i * args.ldc + j), expected, bound) << i << "," << j;
    }
    if (i + 1 == t.m) break;
    for (int64_t j = t.n; j < args.ldc; ++j) {
      ASSERT_EQ(read(result.c.data(), t.c_dtype, i * args.ldc + j),
                read(before.data(), t.c_dtype, i * args.ldc + j))
          << "outside C: " << i << "," << j;
    }
  }
}

TEST(Gemm, MatchesReferenceOverRaggedShapes) {
  for (Isa isa : levels_here()) {
    for (int64_t m : {1, 3, 15, 33, 100}) {
      for (int64_t n : {1, 3, 17, 64, 100}) {
        for (int64_t k : {1, 2, 5, 33, 130}) {
          expect_matches_reference({.m = m, .n = n, .k = k, .isa = isa});
        }
      }
    }
    expect_matches_reference({.m = 257, .n = 257, .k = 257, .isa = isa});
  }
}

TEST(Gemm, MatchesReferenceForEveryTypeAndTranspose) {
  struct Size {
    int64_t m, n, k;
  };
  for (Isa isa : levels_here()) {
    for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      for (int transposes = 0; transposes < 4; ++transposes) {
        for (const Size size : {Size{3, 5, 7}, Size{17, 33, 64}, Size{64, 15, 33}, Size{47, 100, 257}}) {
          for (DType c_dtype : {DType::F32, dtype}) {
            expect_matches_reference({.m = size.m,
                                      .n = size.n,
                                      .k = size.k,
                                      .dtype = dtype,
                                      .c_dtype = c_dtype,
                                      .trans_a = (transposes & 1) != 0,
                                      .trans_b = (transposes & 2) != 0,
                                      .isa = isa});
          }
        }
      }
    }
  }
}

TEST(Gemm, AccumulatesAddsBiasAndAppliesGelu) {
  for (Isa isa : levels_here()) {
    for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      Case t{.m = 31, .n = 50, .k = 70, .dtype = dtype, .c_dtype = dtype, .isa = isa};
      t.accumulate = true;
      expect_matches_reference(t);
      t.c_dtype = DType::F32;
      expect_matches_reference(t);
      t.accumulate = false;
      t.bias = true;
      expect_matches_reference(t);
      t.c_dtype = dtype;
      expect_matches_reference(t);
      t.gelu = true;
      expect_matches_reference(t);
      t.bias = false;
      expect_matches_reference(t);
    }
  }
}

// Long enough for several passes over k (partial sums in C or in scratch), and for several slices of k.
TEST(Gemm, MatchesReferenceWhereKIsCut) {
  for (Isa isa : levels_here()) {
    for (DType dtype : {DType::F32, DType::BF16}) {
      for (DType c_dtype : {DType::F32, dtype}) {
        expect_matches_reference(
            {.m = 19, .n = 45, .k = 2001, .dtype = dtype, .c_dtype = c_dtype, .isa = isa});
        Case t{.m = 16, .n = 33, .k = 9001, .dtype = dtype, .c_dtype = c_dtype, .trans_a = true, .isa = isa};
        t.bias = true;
        t.gelu = true;
        expect_matches_reference(t);
        t.bias = t.gelu = false;
        t.accumulate = true;
        expect_matches_reference(t);
      }
    }
  }
}

TEST(Gemm, MatchesReferenceWhereColumnsAreCut) {
  expect_matches_reference({.m = 5, .n = 1100, .k = 2500, .trans_b = true, .isa = detected_isa()});
}

TEST(Gemm, ReadsOperandsWithNoContiguousDimension) {
  const int64_t m = 21, n = 39, k = 26;
  for (Isa isa : levels_here()) {
    for (DType dtype : {DType::F32, DType::BF16}) {
      const Bytes a = random_values(2 * m * k, dtype, 1), b = random_values(3 * k * n, dtype, 2);
      std::vector<float> c(static_cast<size_t>(m * n));
      GemmArgs args;
      args.m = m;
      args.n = n;
      args.k = k;
      args.a = {a.data(), dtype, 2 * k, 2};
      args.b = {b.data(), dtype, 3 * n, 3};
      args.c = c.data();
      args.ldc = n;
      args.isa = isa;
      const Workspace workspace(gemm_workspace({m, n, k, dtype, dtype, DType::F32, isa}, 1));
      gemm_serial(args, workspace.span());
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t p = 0; p < k; ++p) {
            sum += read(a.data(), dtype, 2 * (i * k + p)) * read(b.data(), dtype, 3 * (p * n + j));
          }
          ASSERT_NEAR(c[static_cast<size_t>(i * n + j)], sum, 2e-5) << isa_name(isa);
        }
      }
    }
  }
}

Bytes run_with_threads(const Case& t, int num_threads) {
  const Bytes a = random_values(t.m * t.k, t.dtype, 1), b = random_values(t.k * t.n, t.dtype, 2);
  const Bytes bias = random_values(t.n, t.dtype, 3);
  Result result;
  const GemmArgs args = make_args(t, a, b, bias, result);
  const Workspace workspace(
      gemm_workspace({t.m, t.n, t.k, t.dtype, t.dtype, t.c_dtype, t.isa}, std::max(1, num_threads)));
  if (num_threads == 0) {
    gemm_serial(args, workspace.span());
  } else {
    ThreadPool pool(num_threads);
    gemm(args, workspace.span(), pool);
  }
  return result.c;
}

TEST(Gemm, GivesTheSameBitsForAnyNumberOfThreads) {
  for (Isa isa : levels_here()) {
    for (DType dtype : {DType::F32, DType::BF16}) {
      for (const Case shape : {Case{.m = 300, .n = 130, .k = 1000}, Case{.m = 5, .n = 700, .k = 64},
                               Case{.m = 64, .n = 64, .k = 5000, .trans_a = true}}) {
        Case t = shape;
        t.dtype = dtype;
        t.c_dtype = dtype;
        t.isa = isa;
        SCOPED_TRACE(describe(t));
        const Bytes one = run_with_threads(t, 1);
        EXPECT_EQ(one, run_with_threads(t, 2));
        EXPECT_EQ(one, run_with_threads(t, 4));
        EXPECT_EQ(one, run_with_threads(t, 0));
      }
    }
  }
}

// The same rows and columns computed as part of a larger product have the same bits.
TEST(Gemm, GivesTheSameBitsWhicheverRowsAndColumnsAreComputedTogether) {
  const int64_t m = 61, n = 75, k = 900;
  for (Isa isa : levels_here()) {
    for (DType dtype : {DType::F32, DType::BF16}) {
      const Bytes a = random_values(m * k, dtype, 1), b = random_values(n * k, dtype, 2);
      const auto compute = [&](int64_t row, int64_t rows, int64_t col, int64_t cols) {
        std::vector<float> c(static_cast<size_t>(rows * cols));
        GemmArgs args;
        args.m = rows;
        args.n = cols;
        args.k = k;
        args.a = {a.data() + row * k * dtype_bytes(dtype), dtype, k, 1};
        args.b = {b.data() + col * k * dtype_bytes(dtype), dtype, 1, k};
        args.c = c.data();
        args.ldc = cols;
        args.isa = isa;
        const Workspace workspace(gemm_workspace({rows, cols, k, dtype, dtype, DType::F32, isa}, 1));
        gemm_serial(args, workspace.span());
        return c;
      };
      const std::vector<float> whole = compute(0, m, 0, n);
      const std::vector<float> part = compute(13, 20, 31, 40);
      for (int64_t i = 0; i < 20; ++i) {
        for (int64_t j = 0; j < 40; ++j) {
          ASSERT_EQ(part[static_cast<size_t>(i * 40 + j)], whole[static_cast<size_t>((i + 13) * n + j + 31)])
              << isa_name(isa) << " " << dtype_name(dtype) << " " << i << "," << j;
        }
      }
    }
  }
}

TEST(Gemm, RunsAmxWhereTheCpuHasIt) {
  if (detected_isa() < Isa::Amx)
    GTEST_SKIP() << "this CPU has no AMX (level " << isa_name(detected_isa()) << ")";
  for (DType dtype : {DType::BF16, DType::F32, DType::F16}) {
    EXPECT_EQ(gemm_engine(Isa::Amx, dtype).k_unit, 32);
    for (bool trans_a : {false, true}) {
      for (bool trans_b : {false, true}) {
        expect_matches_reference({.m = 200,
                                  .n = 150,
                                  .k = 1100,
                                  .dtype = dtype,
                                  .c_dtype = dtype,
                                  .trans_a = trans_a,
                                  .trans_b = trans_b,
                                  .isa = Isa::Amx});
      }
    }
  }
}

TEST(Gemm, RefusesAWorkspaceThatIsTooSmall) {
  std::vector<float> values(64 * 64);
  GemmArgs args;
  args.m = args.n = args.k = 64;
  args.a = args.b = {values.data(), DType::F32, 64, 1};
  args.c = values.data();
  args.ldc = 64;
  EXPECT_THROW(gemm_serial(args, {}), BugError);
}

TEST(CpuFeatures, MeasuresAPeakAtEveryLevel) {
  for (Isa isa : levels_here()) {
    EXPECT_GT(measure_peak(isa, DType::F32, 1), 0.1) << isa_name(isa);
    EXPECT_GT(measure_peak(isa, DType::BF16, 2), 0.1) << isa_name(isa);
  }
}

}  // namespace
}  // namespace tandem::cpu
