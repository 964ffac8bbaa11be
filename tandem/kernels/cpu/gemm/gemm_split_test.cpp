// fp32 products on AMX. What it is fed is checked bit by bit, and what it makes of it by a plain emulation of
// its one instruction, so that the arithmetic is tested on machines without it too.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "tandem/kernels/cpu/gemm/gemm.h"
#include "tandem/kernels/cpu/gemm/gemm_blocking.h"
#include "tandem/kernels/cpu/gemm/gemm_engine.h"
#include "tandem/kernels/cpu/gemm/gemm_split.h"

namespace tandem::cpu {
namespace {

#include "tandem/kernels/cpu/gemm/gemm_split_product-inl.h"

#define SKIP_WITHOUT_AVX512() \
  if (detected_isa() < Isa::Avx512) GTEST_SKIP() << "splitting needs AVX-512, which this CPU lacks"

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
float of_bf16(uint16_t bits) { return from_bits(static_cast<uint32_t>(bits) << 16); }

// --- an emulation of TDPBF16PS --------------------------------------------------------------------------

float flush(float x) { return std::abs(x) < FLT_MIN ? std::copysign(0.0f, x) : x; }

float multiply_add(float x, float y, float sum) { return flush(std::fma(flush(x), flush(y), sum)); }

// tile += a b for 16 x 16 sums: sums over the even and over the odd values of k, each from zero, are added to
// each other and then to the tile.
void multiply_tiles(const uint16_t* a, const uint16_t* b, float* tile, int64_t stride) {
  for (int row = 0; row < 16; ++row) {
    for (int col = 0; col < 16; ++col) {
      float even = 0, odd = 0;
      for (int pair = 0; pair < 16; ++pair) {
        even = multiply_add(of_bf16(a[row * 32 + 2 * pair]), of_bf16(b[pair * 32 + 2 * col]), even);
        odd = multiply_add(of_bf16(a[row * 32 + 2 * pair + 1]), of_bf16(b[pair * 32 + 2 * col + 1]), odd);
      }
      float& sum = tile[row * stride + col];
      sum = flush(sum + flush(even + odd));
    }
  }
}

struct EmulatedUnit {
  void step() {}
  void fetch(const std::byte*) {}
  void load_a(const std::byte* part) { a = reinterpret_cast<const uint16_t*>(part); }
  void load_b(const std::byte* part) { b = reinterpret_cast<const uint16_t*>(part); }
  void load(const std::byte* part_a, const std::byte* part_b) {
    load_a(part_a);
    load_b(part_b);
  }
  void multiply_then_load_a(const std::byte* part) {
    multiply();
    load_a(part);
  }
  void multiply_then_load_b(const std::byte* part) {
    multiply();
    load_b(part);
  }
  void multiply_then_load(const std::byte* part_a, const std::byte* part_b) {
    multiply();
    load(part_a, part_b);
  }
  void multiply() {
    for (int64_t row : {0, 1}) {
      for (int64_t col : {0, 1}) {
        multiply_tiles(a + row * 512, b + col * 512, sums + row * 16 * 32 + col * 16, 32);
      }
    }
  }
  const uint16_t* a;
  const uint16_t* b;
  float sums[32 * 32] = {};
};

void emulated_product(int64_t k, const void* a, const void* b, float* dst, int64_t dst_stride, int64_t,
                      int64_t, bool add, const FetchAhead&) {
  EmulatedUnit unit;
  split_product(unit, k, a, b);
  for (int64_t row = 0; row < 32; ++row) {
    for (int64_t col = 0; col < 32; ++col) {
      float& sum = dst[row * dst_stride + col];
      sum = (add ? sum : 0) + unit.sums[row * 32 + col];
    }
  }
}

GemmEngine emulated_engine() {
  GemmEngine engine = gemm_engine(Isa::Amx, DType::F32);
  engine.product = emulated_product;
  engine.enter = engine.leave = nullptr;
  return engine;
}

// --- packing --------------------------------------------------------------------------------------------

constexpr int64_t kLines = 45, kDepth = 70, kPadded = 96;

struct Source {
  const void* data;
  DType dtype;
  int64_t line_stride, k_stride;
};

std::vector<uint16_t> packed(const Source& source, bool tiles_of_a) {
  constexpr int64_t kPanels = 2, kPanelBytes = kSplitLines * kPadded * kSplitElemBytes;
  std::vector<uint16_t> storage(kPanels * kPanelBytes / 2 + 32, 0xffff);
  void* dst = storage.data();
  size_t space = storage.size() * 2;
  std::align(64, kPanels * kPanelBytes, dst, space);
  (tiles_of_a ? pack_split_a : pack_split_b)({.src = source.data,
                                              .dtype = source.dtype,
                                              .line_stride = source.line_stride,
                                              .k_stride = source.k_stride,
                                              .count = kLines,
                                              .k = kDepth,
                                              .k_padded = kPadded,
                                              .dst = dst,
                                              .panel_bytes = kPanelBytes});
  const auto* begin = static_cast<const uint16_t*>(dst);
  return {begin, begin + kPanels * kPanelBytes / 2};
}

// Part 0 is the largest.
float part_of(const std::vector<uint16_t>& panels, bool tiles_of_a, int64_t line, int64_t k, int64_t part) {
  const int64_t place = k % 32, pair = place % 16, half = place / 16;
  const int64_t block = (line / 32 * kPadded + k / 32 * 32) * 32 * kSplitParts;
  const int64_t in_tile =
      tiles_of_a ? (line % 16 * 16 + pair) * 2 + half : (pair * 16 + line % 16) * 2 + half;
  const int64_t at = block + (tiles_of_a ? 2 - part : part) * 1024 + line % 32 / 16 * 512 + in_tile;
  return of_bf16(panels[static_cast<size_t>(at)]);
}

void expect_sum_of_parts(float value, float first, float second, float third) {
  if (std::isnan(value)) {
    EXPECT_TRUE(std::isnan(first)) << first;
  } else if (std::isinf(value)) {
    EXPECT_EQ(first, value);
  } else {
    const double sum = static_cast<double>(first) + static_cast<double>(second) + static_cast<double>(third);
    const bool tiny = std::abs(value) < 0x1p-100f;  // the last bits may be below those of a bf16 denormal
    EXPECT_LE(std::abs(sum - static_cast<double>(value)), tiny ? 0x1p-133 : 0) << value;
    const float cut = std::abs(value) > 3.38e38f ? 2 : 1;  // the first part is not the nearest
    EXPECT_LE(std::abs(second), std::max(cut * 0x1p-8f * std::abs(value), tiny ? 0x1p-126f : 0)) << value;
    EXPECT_LE(std::abs(third), std::max(cut * 0x1p-17f * std::abs(value), tiny ? 0x1p-126f : 0)) << value;
  }
  if (!std::isfinite(value)) {
    EXPECT_EQ(std::abs(second) + std::abs(third), 0.0f);
  }
}

std::vector<float> any_floats(size_t count) {
  const float inf = std::numeric_limits<float>::infinity();
  std::mt19937 random(5);
  std::vector<float> values(count);
  for (float& value : values) value = from_bits(static_cast<uint32_t>(random()));
  const float special[] = {0.0f,
                           -0.0f,
                           inf,
                           -inf,
                           std::nanf(""),
                           from_bits(0x7f800001),
                           from_bits(0xffffffff),
                           from_bits(0x7fff8000),
                           FLT_MAX,
                           -FLT_MAX,
                           from_bits(0x7f7f8000),
                           from_bits(0x7f7f7fff),
                           from_bits(0x7f7effff),
                           FLT_MIN,
                           from_bits(1),
                           from_bits(0x80008000),
                           from_bits(0x007fffff),
                           1 + FLT_EPSILON,
                           1 - FLT_EPSILON / 2,
                           from_bits(0x3f808000),
                           from_bits(0x3f807fff)};
  for (size_t i = 0; i < std::size(special); ++i) values[i * 37 % count] = special[i];
  return values;
}

TEST(GemmSplit, PanelsHoldPartsThatSumToTheValue) {
  SKIP_WITHOUT_AVX512();
  const std::vector<float> any = any_floats(kLines * kDepth);
  std::vector<float> tame = any;  // no value that needs care
  for (float& value : tame) {
    if (!(std::abs(value) < 1e38f)) value = 1.2345678f;
  }
  for (const std::vector<float>& values : {any, tame}) {
    for (bool along_k : {true, false}) {
      for (bool tiles_of_a : {true, false}) {
        const Source source{values.data(), DType::F32, along_k ? kDepth : 1, along_k ? 1 : kLines};
        const std::vector<uint16_t> panels = packed(source, tiles_of_a);
        for (int64_t line = 0; line < kLines; ++line) {
          for (int64_t k = 0; k < kPadded; ++k) {
            const auto at = static_cast<size_t>(along_k ? line * kDepth + k : k * kLines + line);
            SCOPED_TRACE(fmt::format("along_k {} tiles_of_a {} line {} k {}", along_k, tiles_of_a, line, k));
            expect_sum_of_parts(k < kDepth ? values[at] : 0.0f, part_of(panels, tiles_of_a, line, k, 0),
                                part_of(panels, tiles_of_a, line, k, 1),
                                part_of(panels, tiles_of_a, line, k, 2));
          }
        }
      }
    }
  }
}

// Neither dimension contiguous, and types that become fp32 first.
TEST(GemmSplit, PacksEveryTypeAndAnyStrides) {
  SKIP_WITHOUT_AVX512();
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    std::vector<float> values(2 * kLines * kDepth), exact(values.size());
    std::mt19937 random(6);
    for (size_t i = 0; i < values.size(); ++i) {
      const float value = static_cast<float>(random()) / 4e9f - 0.5f;
      if (dtype == DType::BF16) {
        auto& dst = reinterpret_cast<BFloat16*>(values.data())[i];
        exact[i] = to_float(dst = to_bfloat16(value));
      } else if (dtype == DType::F16) {
        auto& dst = reinterpret_cast<Half*>(values.data())[i];
        exact[i] = to_float(dst = to_half(value));
      } else {
        exact[i] = values[i] = value;
      }
    }
    for (const Source& source :
         {Source{values.data(), dtype, 2 * kDepth, 2}, Source{values.data(), dtype, 1, kLines},
          Source{values.data(), dtype, kDepth, 1}}) {
      for (bool tiles_of_a : {true, false}) {
        const std::vector<uint16_t> panels = packed(source, tiles_of_a);
        for (int64_t line = 0; line < kLines; ++line) {
          for (int64_t k = 0; k < kDepth; ++k) {
            const auto at = static_cast<size_t>(line * source.line_stride + k * source.k_stride);
            float sum = 0;
            for (int64_t part : {2, 1, 0}) sum += part_of(panels, tiles_of_a, line, k, part);
            ASSERT_EQ(sum, exact[at])
                << dtype_name(dtype) << " tiles_of_a " << tiles_of_a << " " << line << "," << k;
          }
        }
      }
    }
  }
}

// --- products -------------------------------------------------------------------------------------------

struct Matrices {
  int64_t m, n, k;
  std::vector<float> a, b;  // m x k, and n x k
  bool a_along_m = false;   // a is k x m
};

GemmArgs args_of(const Matrices& in, std::vector<float>& c, Isa isa) {
  GemmArgs args;
  args.m = in.m;
  args.n = in.n;
  args.k = in.k;
  args.a = {in.a.data(), DType::F32, in.a_along_m ? 1 : in.k, in.a_along_m ? in.m : 1};
  args.b = {in.b.data(), DType::F32, 1, in.k};
  c.resize(static_cast<size_t>(in.m * in.n));
  args.c = c.data();
  args.ldc = in.n;
  args.isa = isa;
  return args;
}

std::vector<float> multiply(const Matrices& in, const GemmEngine& engine) {
  std::vector<float> c;
  const GemmArgs args = args_of(in, c, Isa::Portable);
  const size_t bytes = workspace_bytes({.m = in.m, .n = in.n, .k = in.k}, engine, 1);
  std::vector<std::byte> storage(bytes + 64);
  void* base = storage.data();
  size_t space = storage.size();
  std::align(64, bytes, base, space);
  run_serial(args, engine, {static_cast<std::byte*>(base), bytes});
  return c;
}

Matrices random_matrices(int64_t m, int64_t n, int64_t k, uint32_t seed) {
  Matrices out{m, n, k, std::vector<float>(static_cast<size_t>(m * k)),
               std::vector<float>(static_cast<size_t>(n * k))};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (std::vector<float>* values : {&out.a, &out.b}) {
    for (float& value : *values) value = normal(random);
  }
  return out;
}

// Magnitudes from 2^-30 to 2^30 side by side.
Matrices badly_scaled_matrices(int64_t m, int64_t n, int64_t k, uint32_t seed) {
  Matrices out = random_matrices(m, n, k, seed);
  std::mt19937 random(seed + 1);
  for (std::vector<float>* values : {&out.a, &out.b}) {
    for (float& value : *values) value = std::ldexp(value, static_cast<int>(random() % 61) - 30);
  }
  return out;
}

// The second half of k takes away what the first half gave, to one part in a thousand.
Matrices cancelling_matrices(int64_t m, int64_t n, int64_t k, uint32_t seed) {
  Matrices out = random_matrices(m, n, k, seed);
  const Matrices noise = random_matrices(m, n, k, seed + 1);
  for (int64_t line = 0; line < m; ++line) {
    for (int64_t i = k / 2; i < k; ++i) {
      const auto at = static_cast<size_t>(line * k + i), twin = static_cast<size_t>(line * k + i - k / 2);
      out.a[at] = -out.a[twin] * (1 + 1e-3f * noise.a[at]);
    }
  }
  for (int64_t line = 0; line < n; ++line) {
    for (int64_t i = k / 2; i < k; ++i) {
      out.b[static_cast<size_t>(line * k + i)] = out.b[static_cast<size_t>(line * k + i - k / 2)];
    }
  }
  return out;
}

struct Error {
  double max = 0, rms = 0;
};

// Against double, as a fraction of the sum of magnitudes.
Error error_of(const Matrices& in, const std::vector<float>& c) {
  Error error;
  for (int64_t row = 0; row < in.m; ++row) {
    for (int64_t col = 0; col < in.n; ++col) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < in.k; ++k) {
        const double term = static_cast<double>(in.a[static_cast<size_t>(row * in.k + k)]) *
                            static_cast<double>(in.b[static_cast<size_t>(col * in.k + k)]);
        sum += term;
        magnitude += std::abs(term);
      }
      const double off =
          std::abs(static_cast<double>(c[static_cast<size_t>(row * in.n + col)]) - sum) / magnitude;
      error.max = std::max(error.max, off);
      error.rms += off * off;
    }
  }
  error.rms = std::sqrt(error.rms / static_cast<double>(in.m * in.n));
  return error;
}

using Make = Matrices (*)(int64_t, int64_t, int64_t, uint32_t);

// Over three draws.
void expect_no_less_exact(Make make, int64_t k, double rms_bound, double max_bound) {
  const GemmEngine split = emulated_engine();
  Error ours, plain;
  for (uint32_t seed : {10u, 20u, 30u}) {
    const Matrices in = make(32, 32, k, seed);
    const Error of_split = error_of(in, multiply(in, split));
    const Error of_plain = error_of(in, multiply(in, gemm_engine(Isa::Avx512, DType::F32)));
    ours = {std::max(ours.max, of_split.max), std::max(ours.rms, of_split.rms)};
    plain = {std::max(plain.max, of_plain.max), std::max(plain.rms, of_plain.rms)};
  }
  EXPECT_LE(ours.max, max_bound * plain.max) << "k " << k;
  EXPECT_LE(ours.rms, rms_bound * plain.rms) << "k " << k;
}

TEST(GemmSplit, RoundsLessThanFp32MultiplyAdds) {
  SKIP_WITHOUT_AVX512();
  for (int64_t k : {32, 384, 1200}) {
    expect_no_less_exact(random_matrices, k, 0.7, 0.8);
    expect_no_less_exact(cancelling_matrices, k, 0.7, 0.8);
  }
}

// Where a few products outweigh all others, both round a few times only.
TEST(GemmSplit, RoundsLikeFp32MultiplyAddsWhereFewProductsCount) {
  SKIP_WITHOUT_AVX512();
  for (int64_t k : {32, 384, 1200}) expect_no_less_exact(badly_scaled_matrices, k, 1.1, 1.2);
}

// Notes which parts were fetched in the step before those that are loaded.
struct FetchingUnit {
  void step() { before = std::exchange(now, {}); }
  void fetch(const std::byte* part) { now.push_back(part); }
  void load(const std::byte* a, const std::byte* b) {
    expect_fetched(a, now);
    expect_fetched(b, now);
  }
  void multiply_then_load_a(const std::byte* part) { expect_fetched(part, before); }
  void multiply_then_load_b(const std::byte* part) { expect_fetched(part, before); }
  void multiply_then_load(const std::byte* a, const std::byte* b) { load(a, b); }
  void multiply() {}
  void expect_fetched(const std::byte* part, const std::vector<const std::byte*>& fetched) {
    if (std::find(fetched.begin(), fetched.end(), part) == fetched.end()) ++not_fetched;
  }
  std::vector<const std::byte*> before, now;
  int not_fetched = 0;
};

// But for the first step of all: what the second product loads was fetched during the first.
TEST(GemmSplit, FetchesEveryPartAStepBeforeItIsLoaded) {
  constexpr int64_t kSteps = 3, kPanelBytes = kSteps * kSplitParts * kSplitPartBytes;
  const std::vector<std::byte> panels(4 * kPanelBytes);
  const std::byte *a = panels.data(), *b = a + 3 * kPanelBytes;
  FetchingUnit unit;
  split_product(unit, kSteps * kSplitDepth, a, b);
  EXPECT_EQ(unit.not_fetched, 2 + 5);
  split_product(unit, kSteps * kSplitDepth, a + kPanelBytes, b);
  EXPECT_EQ(unit.not_fetched, 2 + 5);
}

// Rounded once, and short of the three products that are left out.
TEST(GemmSplit, MultipliesTwoNumbersToAUnitInTheLastPlace) {
  SKIP_WITHOUT_AVX512();
  for (uint32_t seed : {1u, 2u, 3u}) {
    const Matrices in = badly_scaled_matrices(64, 64, 1, seed);
    EXPECT_LE(error_of(in, multiply(in, emulated_engine())).max, 0x1p-23);
  }
}

// One large and one small factor, infinities and NaNs, each alone in its row.
TEST(GemmSplit, IsFiniteWhereFp32IsAndNowhereElse) {
  SKIP_WITHOUT_AVX512();
  const float inf = std::numeric_limits<float>::infinity();
  Matrices in = random_matrices(40, 33, 70, 7);
  in.a[3 * 70 + 5] = inf;
  in.a[4 * 70 + 69] = -inf;
  in.a[7 * 70 + 11] = std::nanf("");
  in.a[9 * 70 + 1] = from_bits(0x7f800001);
  in.a[11 * 70 + 40] = FLT_MAX;
  for (int64_t col = 0; col < 33; ++col) in.b[static_cast<size_t>(col * 70 + 40)] *= 0.1f;
  in.a[39 * 70] = from_bits(0xffffffff);
  in.b[32 * 70 + 33] = inf;
  const std::vector<float> ours = multiply(in, emulated_engine());
  const std::vector<float> plain = multiply(in, gemm_engine(Isa::Portable, DType::F32));
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(std::isfinite(ours[i]), std::isfinite(plain[i])) << i / 33 << "," << i % 33;
    if (std::isnan(plain[i])) {
      ASSERT_TRUE(std::isnan(ours[i])) << i / 33 << "," << i % 33;
    }
  }
}

TEST(GemmSplit, GivesTheSameBitsWhicheverRowsAndColumnsAreComputedTogether) {
  SKIP_WITHOUT_AVX512();
  const Matrices whole = random_matrices(61, 75, 900, 8);
  const int64_t row = 13, col = 31;
  Matrices part{20, 40, 900, {}, {}};
  part.a.assign(whole.a.begin() + row * 900, whole.a.begin() + (row + part.m) * 900);
  part.b.assign(whole.b.begin() + col * 900, whole.b.begin() + (col + part.n) * 900);
  const std::vector<float> of_whole = multiply(whole, emulated_engine());
  const std::vector<float> of_part = multiply(part, emulated_engine());
  for (int64_t i = 0; i < part.m; ++i) {
    for (int64_t j = 0; j < part.n; ++j) {
      ASSERT_EQ(of_part[static_cast<size_t>(i * part.n + j)],
                of_whole[static_cast<size_t>((i + row) * whole.n + j + col)])
          << i << "," << j;
    }
  }
}

TEST(GemmSplit, GivesTheSameBitsHoweverManyRowsATaskHas) {
  SKIP_WITHOUT_AVX512();
  Matrices in = random_matrices(250, 250, 90, 8);
  in.a_along_m = true;
  GemmEngine tall = emulated_engine();
  tall.kc = 32;
  GemmEngine flat = tall;
  flat.shared_least = flat.block_least;
  const GemmShape shape{.m = in.m, .n = in.n, .k = in.k};
  ASSERT_EQ(plan_blocking(shape, tall, true).block_least, 2 * plan_blocking(shape, flat, true).block_least);
  EXPECT_EQ(multiply(in, tall), multiply(in, flat));
}

// What the emulation shows holds for AMX, if they agree in every bit.
TEST(GemmSplit, AmxGivesTheBitsOfItsEmulation) {
  if (detected_isa() < Isa::Amx)
    GTEST_SKIP() << "this CPU has no AMX (level " << isa_name(detected_isa()) << ")";
  for (Make make : {Make{random_matrices}, Make{badly_scaled_matrices}, Make{cancelling_matrices}}) {
    Matrices in = make(40, 50, 1200, 9);
    for (bool along_m : {false, true}) {
      in.a_along_m = along_m;
      EXPECT_EQ(multiply(in, gemm_engine(Isa::Amx, DType::F32)), multiply(in, emulated_engine()));
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
