#include <cuda_runtime_api.h>

#include <vector>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/gemm/gemm.h"
#include "tandem/kernels/cuda/kernel_test.h"
#include "tandem/kernels/cuda/library/cublas_lt.h"

namespace tandem::cuda {
namespace {

struct Extents {
  int64_t m, n, k;
};

// From single elements to whole tiles; widths that are multiples of 8 (where the library has every epilogue),
// of 2, and odd ones.
constexpr std::array<Extents, 8> kExtents = {{{1, 1, 1},
                                              {3, 5, 7},
                                              {17, 31, 64},
                                              {100, 8, 33},
                                              {1, 96, 40},
                                              {64, 50, 24},
                                              {128, 256, 192},
                                              {264, 136, 72}}};

template <typename Fn>
void for_products(const Fn& fn) {
  for (const DType storage : kStorage) {
    for (const Extents& extents : kExtents) {
      SCOPED_TRACE(fmt::format("{} m={} n={} k={}", dtype_name(storage), extents.m, extents.n, extents.k));
      fn(storage, extents);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Operands whose product has elements of size about 1.
HostTensor left(DType storage, const Extents& e, bool trans) {
  return random_tensor(storage, trans ? Shape{e.k, e.m} : Shape{e.m, e.k}, 1);
}
HostTensor right(DType storage, const Extents& e, bool trans) {
  return random_tensor(storage, trans ? Shape{e.n, e.k} : Shape{e.k, e.n}, 2, 1 / std::sqrt(double(e.k)));
}
Attrs flags(bool trans_a, bool trans_b) {
  return {{"trans_a", int64_t{trans_a}}, {"trans_b", int64_t{trans_b}}};
}

// What sums of k products of this size may lose: fp32 on plain cores, or with the tensor cores' coarser
// additions.
double loss(DType storage, int64_t k) {
  return (storage == DType::F32 ? 2e-7 : 1e-6) * (4 + std::sqrt(static_cast<double>(k)));
}

// Where the library lacks the epilogue, or an algorithm of its own does so, a product is rounded before the
// bias is added: half an ulp of a value below 8.
double biased_loss(DType storage, int64_t k) {
  return loss(storage, k) + (storage == DType::BF16 ? 0x1p-6 : storage == DType::F16 ? 0x1p-9 : 0);
}

TEST(CudaMatmul, MatchesReferenceForAllTransposes) {
  TANDEM_NEEDS_GPU();
  for_products([](DType storage, const Extents& e) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        expect_as_reference({Op::Matmul,
                             {left(storage, e, trans_a), right(storage, e, trans_b)},
                             {{storage, {e.m, e.n}}},
                             {-1},
                             flags(trans_a, trans_b)},
                            loss(storage, e.k));
      }
    }
  });
}

TEST(CudaMatmul, AddsABiasToEveryRow) {
  TANDEM_NEEDS_GPU();
  for_products([](DType storage, const Extents& e) {
    expect_as_reference({Op::Matmul,
                         {left(storage, e, false), right(storage, e, true), random_tensor(storage, {e.n}, 3)},
                         {{storage, {e.m, e.n}}},
                         {-1},
                         flags(false, true)},
                        biased_loss(storage, e.k));
  });
}

TEST(CudaMatmul, AWideProductIsNotRoundedWithABiasOrWithout) {
  TANDEM_NEEDS_GPU();
  for_products([](DType storage, const Extents& e) {
    Attrs attrs = flags(false, true);
    attrs.set("wide", int64_t{1});
    const HostTensor a = left(storage, e, false), b = right(storage, e, true);
    const TensorType wide{DType::F32, {e.m, e.n}};
    expect_as_reference({Op::Matmul, {a, b}, {wide}, {-1}, attrs}, loss(storage, e.k));
    expect_as_reference({Op::Matmul, {a, b, random_tensor(storage, {e.n}, 3)}, {wide}, {-1}, attrs},
                        loss(storage, e.k));
  });
}

TEST(CudaMatmul, CollapsesLeadingDims) {
  TANDEM_NEEDS_GPU();
  expect_as_reference({Op::Matmul,
                       {random_tensor(DType::BF16, {2, 3, 16}, 1), random_tensor(DType::BF16, {24, 16}, 2),
                        random_tensor(DType::BF16, {24}, 3)},
                       {{DType::BF16, {2, 3, 24}}},
                       {-1},
                       flags(false, true)},
                      1e-4);
}

// The library takes the gelu of a pre-activation that is not rounded yet, and of a tanh of about 11 bits.
// Where it lacks the epilogue, a product of up to 4 may be rounded before the bias is added: half an ulp is
// 2^-7 then.
TEST(CudaMatmulGelu, MatchesReference) {
  TANDEM_NEEDS_GPU();
  for_products([](DType storage, const Extents& e) {
    expect_as_reference({Op::MatmulGelu,
                         {left(storage, e, false), right(storage, e, true), random_tensor(storage, {e.n}, 3)},
                         {{storage, {e.m, e.n}}, {storage, {e.m, e.n}}},
                         {-1, -1},
                         flags(false, true)},
                        storage == DType::F32 ? 1e-5 : 3e-3 + biased_loss(storage, e.k));
  });
}

TEST(CudaMatmulGeluGrad, MatchesReference) {
  TANDEM_NEEDS_GPU();
  for_products([](DType storage, const Extents& e) {
    expect_as_reference(
        {Op::MatmulGeluGrad,
         {left(storage, e, false), right(storage, e, false), random_tensor(storage, {e.m, e.n}, 3)},
         {{storage, {e.m, e.n}}},
         {-1},
         flags(false, false)},
        storage == DType::F32 ? 1e-5 : 1e-2);
  });
}

Attrs weight_gradient(bool fresh) {
  Attrs attrs = flags(true, false);
  if (fresh) attrs.set("fresh", int64_t{1});
  return attrs;
}

TEST(CudaMatmulAcc, AddsOrOverwrites) {
  TANDEM_NEEDS_GPU();
  for_products([](DType storage, const Extents& e) {
    for (const bool fresh : {false, true}) {
      const HostTensor acc = random_tensor(DType::F32, {e.m, e.n}, 3);
      expect_as_reference({Op::MatmulAcc,
                           {acc, left(storage, e, true), right(storage, e, false)},
                           {acc.type},
                           {0},
                           weight_gradient(fresh)},
                          2 * loss(storage, e.k));
    }
  });
}

TEST(CudaMatmulAcc, OverwritesGradientsOfTheStorageType) {
  TANDEM_NEEDS_GPU();
  for_products([](DType storage, const Extents& e) {
    const HostTensor acc = random_tensor(storage, {e.m, e.n}, 3), bias = random_tensor(DType::F32, {e.m}, 4);
    const HostTensor a = left(storage, e, true), b = right(storage, e, false);
    const double slack = 2 * loss(storage, e.k);
    expect_as_reference({Op::MatmulAcc, {acc, a, b}, {acc.type}, {0}, weight_gradient(true)}, slack);
    expect_as_reference(
        {Op::MatmulBiasAcc, {acc, bias, a, b}, {acc.type, bias.type}, {0, 1}, weight_gradient(true)},
        slack + 1e-5 * static_cast<double>(e.k));
  });
}

TEST(CudaMatmulAcc, MatchesReferenceForLongSums) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    const Extents e{24, 32, 20000};
    const HostTensor acc = random_tensor(DType::F32, {e.m, e.n}, 3);
    expect_as_reference({Op::MatmulAcc,
                         {acc, left(storage, e, true), right(storage, e, false)},
                         {acc.type},
                         {0},
                         weight_gradient(false)},
                        2 * loss(storage, e.k));
  }
}

Call bias_acc(DType storage, const Extents& e, bool fresh) {
  const HostTensor acc = random_tensor(DType::F32, {e.m, e.n}, 3),
                   acc_bias = random_tensor(DType::F32, {e.m}, 4);
  return {Op::MatmulBiasAcc,
          {acc, acc_bias, left(storage, e, true), right(storage, e, false)},
          {acc.type, acc_bias.type},
          {0, 1},
          weight_gradient(fresh)};
}

TEST(CudaMatmulBiasAcc, SumsTheColumnsBesideTheProduct) {
  TANDEM_NEEDS_GPU();
  for_products([](DType storage, const Extents& e) {
    for (const bool fresh : {false, true})
      expect_as_reference(bias_acc(storage, e, fresh), 1e-5 + 2 * loss(storage, e.k));
  });
  for (const DType storage : kStorage) {
    for (const bool fresh : {false, true})
      expect_as_reference(bias_acc(storage, {64, 48, 5000}, fresh), 3e-4);
  }
}

Call bias_grad(DType storage, int64_t rows, int64_t width, bool fresh) {
  const HostTensor acc = random_tensor(DType::F32, {width}, 1);
  Attrs attrs;
  if (fresh) attrs.set("fresh", int64_t{1});
  return {Op::BiasGrad, {acc, random_tensor(storage, {rows, width}, 2)}, {acc.type}, {0}, attrs};
}

TEST(CudaBiasGrad, MatchesReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const int64_t rows : {1, 7, 8, 100, 3001}) {
      for (const int64_t width : {1, 5, 8, 31, 64, 256, 260, 312}) {
        SCOPED_TRACE(fmt::format("{} [{}, {}]", dtype_name(storage), rows, width));
        for (const bool fresh : {false, true})
          expect_as_reference(bias_grad(storage, rows, width, fresh), 1e-4);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CudaBiasGrad, MatchesReferenceForTallAndForWideMatrices) {
  TANDEM_NEEDS_GPU();
  expect_as_reference(bias_grad(DType::BF16, 40000, 24, false), 1e-3);
  expect_as_reference(bias_grad(DType::BF16, 12, 50304, false), 2e-5);
  expect_as_reference(bias_grad(DType::F32, 5, 150001, true), 2e-5);
}

// Small integers, whose sums are exact in every type.
float small_integer(int64_t i, int64_t salt) { return static_cast<float>((i * 7 + i / 3 + salt) % 5 - 2); }

// A flat buffer of weights may put a tensor anywhere. The product of integers shows every misplaced element.
TEST(CudaGemm, IsExactWhereverItsTensorsStart) {
  TANDEM_NEEDS_GPU();
  constexpr int64_t kM = 40, kN = 48, kK = 24;
  constexpr size_t kPart = 64 << 10;  // of the memory, for each tensor
  const Gemm plain{kM, kN, kK, true, false, DType::BF16, DType::BF16};
  const size_t workspace =
      gemm_workspace({kM, kN, kK, true, false, DType::BF16, DType::F32, false, GemmEpilogue::ColumnSumsOfA});
  void* allocated = nullptr;
  check(cudaMalloc(&allocated, 4 * kPart + workspace), "cudaMalloc");
  auto* memory = static_cast<std::byte*>(allocated);
  const std::span<std::byte> scratch(memory + 4 * kPart, workspace);
  for (const size_t offset : {0, 1, 2, 4, 8}) {
    for (const auto epilogue : {GemmEpilogue::None, GemmEpilogue::Bias, GemmEpilogue::ColumnSumsOfA}) {
      SCOPED_TRACE(fmt::format("offset {} epilogue {}", offset, static_cast<int>(epilogue)));
      Gemm gemm = plain;
      gemm.epilogue = epilogue;
      const bool sums = epilogue == GemmEpilogue::ColumnSumsOfA;
      if (sums) gemm.out = DType::F32;
      const size_t in_bytes = offset * 2, out_bytes = offset * (sums ? 4 : 2);
      const GemmTensors tensors{memory + in_bytes, memory + kPart + in_bytes, memory + 2 * kPart + out_bytes,
                                memory + 3 * kPart + out_bytes};
      const auto fill = [&](const void* to, int64_t elems, int64_t salt) {
        std::vector<BFloat16> values;
        for (int64_t i = 0; i < elems; ++i) values.push_back(to_bfloat16(small_integer(i, salt)));
        check(cudaMemcpy(const_cast<void*>(to), values.data(), values.size() * 2, cudaMemcpyHostToDevice),
              "cudaMemcpy");
      };
      fill(tensors.a, kK * kM, 1);
      fill(tensors.b, kK * kN, 2);
      fill(tensors.bias, kN, 3);
      gemm_run(gemm, tensors, scratch, nullptr);  // also unprepared
      gemm_prepare(gemm, tensors, scratch, nullptr);
      fill(tensors.bias, kN, 3);
      gemm_run(gemm, tensors, scratch, nullptr);
      check(cudaDeviceSynchronize(), "gemm_run");

      const auto read = [&](const void* from, int64_t elems) {
        HostTensor host(gemm.out, {elems});
        check(cudaMemcpy(host.bytes.data(), from, host.bytes.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
        return host;
      };
      const HostTensor d = read(tensors.d, kM * kN), bias = read(tensors.bias, std::min(kM, kN));
      for (int64_t row = 0; row < kM; ++row) {
        float sum = 0;
        for (int64_t p = 0; p < kK; ++p) sum += small_integer(p * kM + row, 1);
        ASSERT_EQ(bias.at(row), sums ? sum : small_integer(row, 3)) << row;
        for (int64_t col = 0; col < kN; ++col) {
          float want = epilogue == GemmEpilogue::Bias ? small_integer(col, 3) : 0;
          for (int64_t p = 0; p < kK; ++p)
            want += small_integer(p * kM + row, 1) * small_integer(p * kN + col, 2);
          ASSERT_EQ(d.at(row * kN + col), want) << row << ", " << col;
        }
      }
    }
  }
  check(cudaFree(memory), "cudaFree");
}

// Settings that the library accepts, but did not suggest, compute the same product, wherever its edges fall.
TEST(CudaGemm, EveryVariantIsTheProduct) {
  TANDEM_NEEDS_GPU();
  constexpr int64_t kM = 408, kN = 328, kK = 64;  // no sum is above 256: bf16 has it exactly
  constexpr size_t kPart = 512 << 10;
  void* allocated = nullptr;
  check(cudaMalloc(&allocated, 3 * kPart + kGemmWorkspace), "cudaMalloc");
  auto* memory = static_cast<std::byte*>(allocated);
  const GemmTensors tensors{memory, memory + kPart, memory + 2 * kPart};
  const auto fill = [&](const void* to, int64_t elems, int64_t salt) {
    std::vector<BFloat16> values;
    for (int64_t i = 0; i < elems; ++i) values.push_back(to_bfloat16(small_integer(i, salt)));
    check(cudaMemcpy(const_cast<void*>(to), values.data(), values.size() * 2, cudaMemcpyHostToDevice),
          "cudaMemcpy");
  };
  fill(tensors.a, kM * kK, 1);
  fill(tensors.b, kK * kN, 2);
  size_t found = 0;
  for (const auto& [trans_a, trans_b] : {std::pair{false, false}, {true, false}, {false, true}}) {
    const LtProduct product({kM, kN, kK, trans_a, trans_b, DType::BF16, DType::BF16}, tensors);
    const std::vector<Algorithm> variants = product.variants(product.candidates(1).at(0));
    found += variants.size();
    for (size_t i = 0; i < variants.size(); ++i) {
      SCOPED_TRACE(fmt::format("variant {} trans {} {}", i, trans_a, trans_b));
      check(cudaMemset(tensors.d, 0xff, kPart), "cudaMemset");
      ASSERT_TRUE(product.run(variants[i], memory + 3 * kPart, nullptr));
      HostTensor d(DType::BF16, {kM * kN});
      check(cudaMemcpy(d.bytes.data(), tensors.d, d.bytes.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
      for (int64_t row = 0; row < kM; ++row) {
        for (int64_t col = 0; col < kN; ++col) {
          float want = 0;
          for (int64_t p = 0; p < kK; ++p)
            want += small_integer(trans_a ? p * kM + row : row * kK + p, 1) *
                    small_integer(trans_b ? col * kK + p : p * kN + col, 2);
          ASSERT_EQ(d.at(row * kN + col), want) << row << ", " << col;
        }
      }
    }
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  EXPECT_TRUE(found > 0 || properties.major != 9) << "they were found on a GPU of this kind";
  check(cudaFree(memory), "cudaFree");
}

}  // namespace
}  // namespace tandem::cuda
