#include "tandem/kernels/cuda/library/cublas_lt.h"

#include <algorithm>
#include <initializer_list>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/device/shared_library.h"

namespace tandem::cuda {
namespace {

// The functions that are used, and the process's one handle.
struct CublasLt {
  SharedLibrary library{"libcublasLt.so.13"};
#define TANDEM_CUBLAS_LT(name) \
  decltype(&::cublasLt##name) name = library.load<decltype(name)>("cublasLt" #name)
  TANDEM_CUBLAS_LT(Create);
  TANDEM_CUBLAS_LT(GetStatusString);
  TANDEM_CUBLAS_LT(GetVersion);
  TANDEM_CUBLAS_LT(MatmulDescCreate);
  TANDEM_CUBLAS_LT(MatmulDescDestroy);
  TANDEM_CUBLAS_LT(MatmulDescSetAttribute);
  TANDEM_CUBLAS_LT(MatrixLayoutCreate);
  TANDEM_CUBLAS_LT(MatrixLayoutDestroy);
  TANDEM_CUBLAS_LT(MatmulPreferenceCreate);
  TANDEM_CUBLAS_LT(MatmulPreferenceDestroy);
  TANDEM_CUBLAS_LT(MatmulPreferenceSetAttribute);
  TANDEM_CUBLAS_LT(MatmulAlgoGetHeuristic);
  TANDEM_CUBLAS_LT(MatmulAlgoCheck);
  TANDEM_CUBLAS_LT(MatmulAlgoConfigSetAttribute);
  TANDEM_CUBLAS_LT(Matmul);
#undef TANDEM_CUBLAS_LT
  cublasLtHandle_t handle = nullptr;

  CublasLt() { check(Create(&handle), "cublasLtCreate"); }

  void check(cublasStatus_t status, const char* what) const {
    if (status != CUBLAS_STATUS_SUCCESS) throw DeviceError("cublasLt: {}: {}", what, GetStatusString(status));
  }
};

const CublasLt& lt() {
  static const CublasLt library;
  return library;
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::F32: return CUDA_R_32F;
    case DType::BF16: return CUDA_R_16BF;
    case DType::F16: return CUDA_R_16F;
    case DType::F8E4M3: return CUDA_R_8F_E4M3;
    case DType::F8E5M2: return CUDA_R_8F_E5M2;
    default: TANDEM_CHECK(false, "no matrix product of {}", dtype_name(dtype));
  }
  return CUDA_R_32F;
}

cublasLtEpilogue_t epilogue_of(GemmEpilogue epilogue) {
  switch (epilogue) {
    case GemmEpilogue::None: return CUBLASLT_EPILOGUE_DEFAULT;
    case GemmEpilogue::Bias: return CUBLASLT_EPILOGUE_BIAS;
    case GemmEpilogue::GeluBias: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case GemmEpilogue::GeluGrad: return CUBLASLT_EPILOGUE_DGELU;
    case GemmEpilogue::ColumnSumsOfA: return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// Sums over parts of k must have a fixed order and lose nothing: parts of the compute type (f32), added in a
// step of their own. In-place reduction is left out: it promises one part after the other, not which.
uint32_t reduction_schemes(DType out) {
  const uint32_t in_output = out == DType::F32 ? CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE : 0;
  return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | in_output;
}

// Of thousands that were tried on an H200 for the products of the models in configs/, those that beat the
// library's suggestions by more than 1%. It suggests a few tiles for each shape, most of them powers of two.
struct Settings {
  cublasLtMatmulTile_t tile;
  cublasLtClusterShape_t cluster;
  uint32_t option;
  int32_t splits;  // of k
};
constexpr Settings kSettings[] = {
    {CUBLASLT_MATMUL_TILE_192x104, CUBLASLT_CLUSTER_SHAPE_1x1x1, 1, 1},
    {CUBLASLT_MATMUL_TILE_136x128, CUBLASLT_CLUSTER_SHAPE_2x1x1, 2, 1},
    {CUBLASLT_MATMUL_TILE_160x128, CUBLASLT_CLUSTER_SHAPE_2x1x1, 0, 1},
    {CUBLASLT_MATMUL_TILE_320x64, CUBLASLT_CLUSTER_SHAPE_1x2x1, 2, 1},
    {CUBLASLT_MATMUL_TILE_160x192, CUBLASLT_CLUSTER_SHAPE_1x1x1, 6, 1},
    {CUBLASLT_MATMUL_TILE_144x128, CUBLASLT_CLUSTER_SHAPE_1x1x1, 4, 1},
    {CUBLASLT_MATMUL_TILE_128x224, CUBLASLT_CLUSTER_SHAPE_2x1x1, 7, 2},
};

// fp32 throughout, also for f32 operands: no TF32. Host scalars are copied when the work is enqueued.
constexpr float kOne = 1, kZero = 0;

}  // namespace

int alignment_of(const GemmTensors& tensors) {
  uintptr_t bits = 16;
  for (const void* address : {tensors.a, tensors.b, static_cast<const void*>(tensors.d),
                              static_cast<const void*>(tensors.bias), static_cast<const void*>(tensors.aux)})
    bits |= reinterpret_cast<uintptr_t>(address);
  return static_cast<int>(bits & -bits);
}

size_t cublas_lt_version() { return lt().GetVersion(); }

void LtProduct::Destroy::operator()(cublasLtMatmulDescOpaque_t* descriptor) const {
  lt().MatmulDescDestroy(descriptor);
}
void LtProduct::Destroy::operator()(cublasLtMatrixLayoutOpaque_t* descriptor) const {
  lt().MatrixLayoutDestroy(descriptor);
}
void LtProduct::Destroy::operator()(cublasLtMatmulPreferenceOpaque_t* descriptor) const {
  lt().MatmulPreferenceDestroy(descriptor);
}

// A row-major matrix is, to the library, its transpose.
LtProduct::Layout LtProduct::row_major(DType dtype, int64_t rows, int64_t cols, int64_t pitch) {
  cublasLtMatrixLayout_t layout = nullptr;
  lt().check(lt().MatrixLayoutCreate(&layout, data_type(dtype), static_cast<uint64_t>(cols),
                                     static_cast<uint64_t>(rows), pitch == 0 ? cols : pitch),
             "cublasLtMatrixLayoutCreate");
  return Layout(layout);
}

LtProduct::LtProduct(const Gemm& gemm, const GemmTensors& tensors) : gemm_(gemm), tensors_(tensors) {
  cublasLtMatmulDesc_t operation = nullptr;
  lt().check(lt().MatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  operation_.reset(operation);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    lt().check(lt().MatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, gemm.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, gemm.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(gemm.epilogue));
  if (gemm.epilogue != GemmEpilogue::None && gemm.epilogue != GemmEpilogue::GeluGrad)
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, tensors.bias);
  if (gemm.epilogue == GemmEpilogue::GeluBias || gemm.epilogue == GemmEpilogue::GeluGrad) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, tensors.aux);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, gemm.n);
  }
  if (is_fp8(gemm.in)) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, tensors.scale_b);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, tensors.scale_a);
    // The matrix units' own sums keep about 13 bits. That is enough forward; gradients' sums are moved to
    // fp32 registers on the way, which costs 3% of a step of llama-1b and brings its loss half as far from
    // bf16's.
    const bool is_gradient = gemm.in == DType::F8E5M2 || gemm.in_b == DType::F8E5M2;
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(is_gradient ? 0 : 1));
  }
  a_ = gemm.trans_a ? row_major(gemm.in, gemm.k, gemm.m, gemm.pitch_a)
                    : row_major(gemm.in, gemm.m, gemm.k, gemm.pitch_a);
  const DType in_b = gemm.in_b.value_or(gemm.in);
  b_ = gemm.trans_b ? row_major(in_b, gemm.n, gemm.k) : row_major(in_b, gemm.k, gemm.n);
  d_ = row_major(gemm.out, gemm.m, gemm.n);
}

std::vector<Algorithm> LtProduct::candidates(int most) const {
  cublasLtMatmulPreference_t preference = nullptr;
  lt().check(lt().MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy> owner(preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    lt().check(lt().MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
               "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kGemmWorkspace});
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction_schemes(gemm_.out));
  const auto alignment = static_cast<uint32_t>(alignment_of(tensors_));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(attribute, alignment);

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t status =
      lt().MatmulAlgoGetHeuristic(lt().handle, operation_.get(), b_.get(), a_.get(), d_.get(), d_.get(),
                                  preference, most, results.data(), &found);
  if (status != CUBLAS_STATUS_SUCCESS) return {};
  results.resize(static_cast<size_t>(std::max(found, 0)));
  std::vector<Algorithm> algorithms;
  for (const cublasLtMatmulHeuristicResult_t& result : results) {
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kGemmWorkspace)
      algorithms.push_back(result.algo);
  }
  return algorithms;
}

std::vector<Algorithm> LtProduct::variants(const Algorithm& like) const {
  std::vector<Algorithm> found;
  for (const Settings& settings : kSettings) {
    Algorithm algorithm = like;
    bool has_all = true;
    const auto set = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto value) {
      has_all = has_all && lt().MatmulAlgoConfigSetAttribute(&algorithm, attribute, &value, sizeof(value)) ==
                               CUBLAS_STATUS_SUCCESS;
    };
    set(CUBLASLT_ALGO_CONFIG_TILE_ID, static_cast<uint32_t>(settings.tile));
    set(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, static_cast<uint16_t>(settings.cluster));
    set(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, settings.option);
    set(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, settings.splits);
    set(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, settings.splits > 1
                                                   ? uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}
                                                   : uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
    if (has_all && accepts(algorithm)) found.push_back(algorithm);
  }
  return found;
}

bool LtProduct::accepts(const Algorithm& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = lt().MatmulAlgoCheck(lt().handle, operation_.get(), b_.get(), a_.get(),
                                                     d_.get(), d_.get(), &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kGemmWorkspace;
}

bool LtProduct::run(const Algorithm& algorithm, void* workspace, cudaStream_t queue) const {
  return lt().Matmul(lt().handle, operation_.get(), &kOne, tensors_.b, b_.get(), tensors_.a, a_.get(),
                     gemm_.accumulate ? &kOne : &kZero, tensors_.d, d_.get(), tensors_.d, d_.get(),
                     &algorithm, workspace, kGemmWorkspace, queue) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace tandem::cuda
