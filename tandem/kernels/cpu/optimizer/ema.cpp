// The moving average of weights, of their masters where they have some.
#include "tandem/base/split_float.h"
#include "tandem/kernels/cpu/optimizer/optimizer_kernels.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"
#include "tandem/runtime/ema_step.h"

namespace tandem::cpu {
namespace {

// The numbers that are trained: weights in fp32, masters, or masters in halves.
template <typename Read>
void average(const EmaStep& step, float* ema, int64_t begin, int64_t end, const Read& read) {
  for (int64_t i = begin; i < end; ++i) ema[i] = next_average(step, ema[i], read(i));
}

void run(const KernelArgs& args, Stream& stream) {
  const EmaStep step =
      ema_step(args.attrs.real("decay"), args.in[0].as<const float>(), args.in[1].as<const double>());
  float* ema = args.out[0].as<float>();
  const TensorArg &w = args.in[3], &number = args.in[args.in.size() - 1];
  for_pieces(stream.pool(), args.out[0].elems(), kElemsPerTask, [&](int64_t begin, int64_t end, int) {
    if (number.type.dtype == DType::I16) {
      const auto* high = w.as<const BFloat16>();
      const auto* low = number.as<const int16_t>();
      average(step, ema, begin, end, [&](int64_t i) { return join_float({high[i].bits, low[i]}); });
    } else {
      average(step, ema, begin, end, [&, x = number.as<const float>()](int64_t i) { return x[i]; });
    }
  });
}

bool supports(const CallSignature& call) {
  if (call.in[2].dtype != DType::F32) return false;
  if (call.in.size() == 4) return call.in[3].dtype == DType::F32;
  return is_half(call.in[3].dtype) && call.in[4].dtype == master_dtype(call.in[3].dtype);
}

}  // namespace

void add_ema_kernels(KernelRegistry& registry) { registry.add({"cpu.ema", Op::Ema, supports, nullptr, run}); }

}  // namespace tandem::cpu
