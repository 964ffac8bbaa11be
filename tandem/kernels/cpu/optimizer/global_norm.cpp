// The norm of all gradients together, in two steps between which ranks add up their sums. Squares are summed
// in double, where no finite fp32 overflows: a sum that is not finite means a gradient that is not.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/kernels/cpu/optimizer/optimizer_chunks.h"
#include "tandem/kernels/cpu/optimizer/optimizer_kernels.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/optimizer/global_norm.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

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

double sum_of_squares(DType dtype, const void* src, int64_t elems) {
  return HWY_DYNAMIC_DISPATCH(sum_squares)(dtype, src, elems);
}

namespace {

bool supports_square_sums(const CallSignature& call) {
  return call.in[0].dtype == DType::F32 && call.in[1].dtype == DType::F64 &&
         call.out[0].dtype == DType::F64 &&
         std::all_of(call.in.begin() + 2, call.in.end(),
                     [](const TensorType& g) { return is_storage(g.dtype); });
}

size_t workspace(const CallSignature& call, int) {
  int64_t chunks = 0;
  for (size_t i = 2; i < call.in.size(); ++i) chunks += OptimizerChunks::count(call.in[i].shape.elems());
  return static_cast<size_t>(chunks) * sizeof(double);
}

void run_square_sums(const KernelArgs& args, Stream& stream) {
  const TensorArg& stats = args.in[1];
  const std::span<const TensorArg> pieces = args.in.subspan(2);
  const std::vector<int64_t> slots = read_slots(args);
  const int64_t num_slots = args.attrs.integer("num_slots");
  OptimizerChunks chunks;
  for (const TensorArg& g : pieces) chunks.add_tensor(g.elems());
  auto* partials = reinterpret_cast<double*>(args.workspace.data());
  stream.pool().parallel_for(chunks.size(), [&](int64_t task, int) {
    const auto [tensor, begin, elems] = chunks[task];
    const TensorArg& g = pieces[tensor];
    const std::byte* src = g.as<const std::byte>() + begin * dtype_bytes(g.type.dtype);
    partials[task] = sum_of_squares(g.type.dtype, src, elems);
  });
  const double inv_scale = args.in[0].as<float>()[kHyperInvScale];
  auto* sums = args.out[0].as<double>();
  std::fill_n(sums, num_slots + 1, 0.0);
  for (size_t i = 0; i < pieces.size(); ++i) {
    double sum = 0;
    const double* partial = partials;
    partials += OptimizerChunks::count(pieces[i].elems());
    for (; partial != partials; ++partial) sum += *partial;
    sums[slots[i]] += inv_scale * inv_scale * sum;
    if (!std::isfinite(sum)) sums[num_slots] += 1;
  }
  std::copy_n(stats.as<double>(), stats.elems(), sums + num_slots + 1);
}

bool supports_global_norm(const CallSignature& call) {
  return call.in[0].dtype == DType::F64 && call.out[0].dtype == DType::F64;
}

void run_global_norm(const KernelArgs& args, Stream&) {
  const auto* sums = args.in[0].as<double>();
  const int64_t num_slots = args.attrs.integer("num_slots");
  const double norm = std::sqrt(std::accumulate(sums, sums + num_slots, 0.0));
  args.out[0].as<double>()[0] = norm;
  args.out[0].as<double>()[1] = sums[num_slots] == 0 && std::isfinite(norm) ? 1 : 0;
}

}  // namespace

void add_global_norm_kernels(KernelRegistry& registry) {
  registry.add({"cpu.square_sums", Op::SquareSums, supports_square_sums, workspace, run_square_sums});
  registry.add({"cpu.global_norm", Op::GlobalNorm, supports_global_norm, nullptr, run_global_norm});
}

}  // namespace cpu
}  // namespace tandem
#endif
