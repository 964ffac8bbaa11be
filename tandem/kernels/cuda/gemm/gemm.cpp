#include "tandem/kernels/cuda/gemm/gemm.h"

#include <bit>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/gemm/bias_grad.h"
#include "tandem/kernels/cuda/gemm/gemm_algorithms.h"
#include "tandem/kernels/cuda/gemm/gemm_cache.h"
#include "tandem/kernels/cuda/gemm/gemm_passes.h"
#include "tandem/kernels/cuda/library/cublas_lt.h"

namespace tandem::cuda {
namespace {

constexpr int kCandidates = 24;

struct Call {
  Gemm gemm;
  GemmTensors tensors;
};

std::filesystem::path cache_file_of_this_gpu() {
  int device = 0;
  cudaDeviceProp properties{};
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return gemm_cache_file(properties.name, properties.major, properties.minor, cublas_lt_version());
}

// The process's choices. What the file knows is not one of them before the library has accepted it.
class Choices {
 public:
  std::optional<GemmChoice> find(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto it = choices_.find(key);
    return it == choices_.end() ? std::nullopt : std::optional(it->second);
  }
  std::optional<GemmChoice> remembered(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    return cache_.find(key);
  }
  // Waits without the lock, which the thread whose turn it is needs.
  GemmCache::Turn take_turn() {
    GemmCache::Turn turn(file_);
    const std::lock_guard lock(mutex_);
    cache_.refresh();
    return turn;
  }
  void add(const std::string& key, const GemmChoice& choice) {
    const std::lock_guard lock(mutex_);
    if (!choices_.emplace(key, choice).second) return;  // another thread was first
    if (cache_.find(key) != choice) cache_.add(key, choice);
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, GemmChoice> choices_;
  const std::filesystem::path file_ = cache_file_of_this_gpu();
  GemmCache cache_{file_};
};

Choices& choices() {
  static Choices table;
  return table;
}

// Of GemmEpilogue::Bias: that of stored values.
DType bias_dtype(const Gemm& gemm) { return is_fp8(gemm.in) ? DType::BF16 : gemm.in; }

// Its GELU may be computed with few bits: good for 16-bit results, not for f32. The pre-activation's rows
// must be multiples of 16 bytes.
bool library_may_have(const Gemm& gemm, const GemmTensors& tensors) {
  switch (gemm.epilogue) {
    case GemmEpilogue::None: return true;
    case GemmEpilogue::Bias: return bias_dtype(gemm) == gemm.out;
    case GemmEpilogue::GeluBias:
    case GemmEpilogue::GeluGrad: return is_half(gemm.in) && gemm.n % 8 == 0 && alignment_of(tensors) == 16;
    case GemmEpilogue::ColumnSumsOfA: return is_half(gemm.in) && gemm.out == DType::F32;  // as its sums are
  }
  return false;
}

// What is left for the library where the epilogue is a pass of ours.
Call product_alone(const Gemm& gemm, const GemmTensors& tensors) {
  Call call{gemm, tensors};
  call.tensors.bias = call.tensors.aux = nullptr;
  call.gemm.epilogue = GemmEpilogue::None;
  if (gemm.epilogue == GemmEpilogue::Bias) call.gemm.accumulate = true;  // onto the bias: rounded once
  if (gemm.epilogue == GemmEpilogue::GeluBias) {
    call.gemm.epilogue = GemmEpilogue::Bias;
    call.tensors.d = tensors.aux;
    call.tensors.bias = tensors.bias;
  }
  return call;
}

void run_separately(const Gemm& gemm, const GemmTensors& tensors, std::span<std::byte> workspace,
                    cudaStream_t queue) {
  const Call alone = product_alone(gemm, tensors);
  if (gemm.epilogue == GemmEpilogue::Bias)
    spread_bias(bias_dtype(gemm), tensors.bias, gemm.out, tensors.d, gemm.m, gemm.n, queue);
  gemm_run(alone.gemm, alone.tensors, workspace, queue);
  switch (gemm.epilogue) {
    case GemmEpilogue::None:
    case GemmEpilogue::Bias: return;
    case GemmEpilogue::GeluBias: return apply_gelu(gemm.in, tensors.aux, tensors.d, gemm.m * gemm.n, queue);
    case GemmEpilogue::GeluGrad:
      return apply_gelu_slope(gemm.in, tensors.aux, tensors.d, gemm.m * gemm.n, queue);
    case GemmEpilogue::ColumnSumsOfA:
      return column_sums(gemm.in, tensors.a, gemm.k, gemm.m, static_cast<float*>(tensors.bias),
                         gemm.accumulate, workspace.subspan(kGemmWorkspace), queue);
  }
}

// The library overwrites the sums of columns; where they are to be added, they go to the workspace first.
bool adds_sums(const Gemm& gemm) { return gemm.epilogue == GemmEpilogue::ColumnSumsOfA && gemm.accumulate; }

GemmTensors library_tensors(const Gemm& gemm, GemmTensors tensors, std::span<std::byte> workspace) {
  if (adds_sums(gemm)) tensors.bias = workspace.data() + kGemmWorkspace;
  return tensors;
}

// By the tensors that the library would get: an algorithm is good for every call of the same name.
std::string key_of(const Gemm& gemm, const GemmTensors& tensors, std::span<std::byte> workspace) {
  return gemm_key(gemm, alignment_of(library_tensors(gemm, tensors, workspace)));
}

bool run_in_library(const Gemm& gemm, const GemmTensors& tensors, const Algorithm& algorithm,
                    std::span<std::byte> workspace, cudaStream_t queue) {
  const GemmTensors used = library_tensors(gemm, tensors, workspace);
  if (!LtProduct(gemm, used).run(algorithm, workspace.data(), queue)) return false;
  if (adds_sums(gemm))
    add_vector(static_cast<const float*>(used.bias), static_cast<float*>(tensors.bias), gemm.m, queue);
  return true;
}

bool run_choice(const GemmChoice& choice, const Gemm& gemm, const GemmTensors& tensors,
                std::span<std::byte> workspace, cudaStream_t queue) {
  if (!choice.separate)
    return run_in_library(gemm, tensors, std::bit_cast<Algorithm>(choice.algorithm), workspace, queue);
  run_separately(gemm, tensors, workspace, queue);
  return true;
}

// The library's suggestions, best first by its own estimate, and variants of the first where more than one is
// wanted; where it has none, the epilogue is a pass of ours.
std::vector<GemmChoice> alternatives(const Gemm& gemm, const GemmTensors& tensors, int most) {
  std::vector<GemmChoice> found;
  if (library_may_have(gemm, tensors)) {
    const LtProduct product(gemm, tensors);
    std::vector<Algorithm> algorithms = product.candidates(most);
    if (most > 1 && !algorithms.empty()) {
      const std::vector<Algorithm> more = product.variants(algorithms.front());
      algorithms.insert(algorithms.end(), more.begin(), more.end());
    }
    for (const Algorithm& algorithm : algorithms)
      found.push_back({false, std::bit_cast<decltype(GemmChoice::algorithm)>(algorithm)});
  }
  if (!found.empty()) return found;
  if (gemm.epilogue == GemmEpilogue::None)
    throw DeviceError("cublasLt: no algorithm for {}", gemm_key(gemm, alignment_of(tensors)));
  return {GemmChoice{.separate = true}};
}

bool pass_may_pay(const Gemm& gemm) {
  return gemm.epilogue != GemmEpilogue::None && gemm.epilogue != GemmEpilogue::Bias;
}

GemmChoice choose_by_time(const Gemm& gemm, const GemmTensors& tensors, std::span<std::byte> workspace,
                          cudaStream_t queue) {
  std::vector<GemmChoice> ways = alternatives(gemm, library_tensors(gemm, tensors, workspace), kCandidates);
  if (pass_may_pay(gemm) && !ways.front().separate) ways.insert(ways.begin(), GemmChoice{.separate = true});
  if (ways.size() == 1) return ways.front();
  const auto best = fastest(
      ways.size(), [&](size_t i) { return run_choice(ways[i], gemm, tensors, workspace, queue); }, queue);
  if (!best) throw DeviceError("cublasLt: runs no algorithm for {}", key_of(gemm, tensors, workspace));
  return ways[*best];
}

// The file's choice, if it can still be run.
std::optional<GemmChoice> remembered(const std::string& key, const Gemm& gemm, const GemmTensors& tensors,
                                     std::span<std::byte> workspace) {
  const std::optional<GemmChoice> choice = choices().remembered(key);
  if (!choice) return std::nullopt;
  const bool usable = choice->separate ? gemm.epilogue != GemmEpilogue::None
                                       : library_may_have(gemm, tensors) &&
                                             LtProduct(gemm, library_tensors(gemm, tensors, workspace))
                                                 .accepts(std::bit_cast<Algorithm>(choice->algorithm));
  return usable ? choice : std::nullopt;
}

void check_call(const Gemm& gemm, std::span<std::byte> workspace) {
  TANDEM_CHECK(gemm_supported(gemm), "{}", gemm_key(gemm, 0));
  TANDEM_CHECK(gemm.m > 0 && gemm.n > 0 && gemm.k > 0, "{}", gemm_key(gemm, 0));
  TANDEM_CHECK(workspace.size() >= gemm_workspace(gemm), "workspace of {} bytes", workspace.size());
}

}  // namespace

size_t gemm_workspace(const Gemm& gemm) {
  if (gemm.epilogue != GemmEpilogue::ColumnSumsOfA) return kGemmWorkspace;
  return kGemmWorkspace + column_sums_workspace(gemm.in, gemm.k, gemm.m);
}

bool gemm_supported(const Gemm& gemm) {
  if (gemm.pitch_a != 0 && gemm.epilogue != GemmEpilogue::None) return false;
  if (is_fp8(gemm.in)) {
    const bool along_k =
        !gemm.trans_a && gemm.trans_b && gemm.m % 16 == 0 && gemm.n % 16 == 0 && gemm.k % 16 == 0;
    const bool epilogue =
        gemm.epilogue == GemmEpilogue::None || (gemm.epilogue == GemmEpilogue::Bias && !gemm.accumulate);
    return along_k && epilogue && (gemm.out == DType::BF16 || gemm.out == DType::F32);
  }
  if (gemm.in_b) return false;
  if (gemm.in != DType::F32 && !is_half(gemm.in)) return false;
  switch (gemm.epilogue) {
    case GemmEpilogue::None: return gemm.out == gemm.in || gemm.out == DType::F32;
    case GemmEpilogue::Bias: return (gemm.out == gemm.in || gemm.out == DType::F32) && !gemm.accumulate;
    case GemmEpilogue::ColumnSumsOfA: return (gemm.out == gemm.in || gemm.out == DType::F32) && gemm.trans_a;
    default: return gemm.out == gemm.in && !gemm.accumulate;
  }
}

void gemm_prepare(const Gemm& gemm, const GemmTensors& tensors, std::span<std::byte> workspace,
                  cudaStream_t queue) {
  check_call(gemm, workspace);
  const std::string key = key_of(gemm, tensors, workspace);
  if (choices().find(key)) return;
  std::optional<GemmChoice> choice = remembered(key, gemm, tensors, workspace);
  const auto prepare_alone = [&] {
    const Call alone = product_alone(gemm, tensors);
    gemm_prepare(alone.gemm, alone.tensors, workspace, queue);
  };
  if (!choice) {
    if (pass_may_pay(gemm)) prepare_alone();  // takes a turn of its own
    const GemmCache::Turn turn = choices().take_turn();
    choice = remembered(key, gemm, tensors, workspace);  // by another process meanwhile
    if (!choice) choice = choose_by_time(gemm, tensors, workspace, queue);
    choices().add(key, *choice);
  }
  if (choice->separate) prepare_alone();
  choices().add(key, *choice);
}

void gemm_run(const Gemm& gemm, const GemmTensors& tensors, std::span<std::byte> workspace,
              cudaStream_t queue) {
  check_call(gemm, workspace);
  const std::string key = key_of(gemm, tensors, workspace);
  std::optional<GemmChoice> choice = choices().find(key);
  if (!choice) choice = alternatives(gemm, library_tensors(gemm, tensors, workspace), 1).front();
  if (!run_choice(*choice, gemm, tensors, workspace, queue))
    throw DeviceError("cublasLt: refused to run {}", key);
}

}  // namespace tandem::cuda
