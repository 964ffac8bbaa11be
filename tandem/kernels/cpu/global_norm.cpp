// The norm of all gradients together. Squares are summed in double, where no finite fp32 overflows: an
// infinite sum means an infinite gradient.
#include <algorithm>
#include <cmath>

#include "tandem/kernels/cpu/optimizer_chunks.h"
#include "tandem/kernels/cpu/optimizer_kernels.h"
#include "tandem/kernels/cpu/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/global_norm.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

template <typename G>
double sum_squares_of(const G* src, int64_t elems) {
  const FloatTag d;
  const hn::Half<FloatTag> half;
  const hn::Rebind<double, decltype(half)> wide;
  auto low_sum = hn::Zero(wide), high_sum = low_sum;
  for_each_vector(static_cast<size_t>(elems), [&](size_t i, auto part) {
    const auto g = load_float(d, src + i, part);
    const auto low = hn::PromoteTo(wide, hn::LowerHalf(half, g));
    low_sum = hn::MulAdd(low, low, low_sum);
#if HWY_TARGET != HWY_SCALAR  // whose only lane is the lower half
    const auto high = hn::PromoteTo(wide, hn::UpperHalf(half, g));
    high_sum = hn::MulAdd(high, high, high_sum);
#endif
  });
  return hn::GetLane(hn::SumOfLanes(wide, hn::Add(low_sum, high_sum)));
}

double sum_squares(DType dtype, const void* src, int64_t elems) {
  double sum = 0;
  cpu::with_storage(dtype, [&]<typename G>(G) { sum = sum_squares_of(static_cast<const G*>(src), elems); });
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(sum_squares);

namespace cpu {
namespace {

bool supports(const CallSignature& call) {
  return call.in[0].dtype == DType::F32 && call.out[0].dtype == DType::F64 &&
         std::all_of(call.in.begin() + 1, call.in.end(),
                     [](const TensorType& g) { return is_storage(g.dtype); });
}

size_t workspace(const CallSignature& call, int) {
  int64_t chunks = 0;
  for (size_t i = 1; i < call.in.size(); ++i) chunks += OptimizerChunks::count(call.in[i].shape.elems());
  return static_cast<size_t>(chunks) * sizeof(double);
}

void run_global_norm(const KernelArgs& args, Stream& stream) {
  const std::span<const TensorArg> gradients = args.in.subspan(1);
  OptimizerChunks chunks;
  for (const TensorArg& g : gradients) chunks.add_tensor(g.elems());
  auto* partials = reinterpret_cast<double*>(args.workspace.data());
  stream.pool().parallel_for(chunks.size(), [&](int64_t task, int) {
    const auto [tensor, begin, elems] = chunks[task];
    const TensorArg& g = gradients[tensor];
    const std::byte* src = g.as<const std::byte>() + begin * dtype_bytes(g.type.dtype);
    partials[task] = HWY_DYNAMIC_DISPATCH(sum_squares)(g.type.dtype, src, elems);
  });
  double sum = 0;
  for (int64_t task = 0; task < chunks.size(); ++task) sum += partials[task];
  const double norm = args.in[0].as<float>()[kHyperInvScale] * std::sqrt(sum);
  args.out[0].as<double>()[0] = norm;
  args.out[0].as<double>()[1] = std::isfinite(norm) ? 1 : 0;
}

}  // namespace

void add_global_norm_kernels(KernelRegistry& registry) {
  registry.add({"cpu.global_norm", Op::GlobalNorm, supports, workspace, run_global_norm});
}

}  // namespace cpu
}  // namespace tandem
#endif
