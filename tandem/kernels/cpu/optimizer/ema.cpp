// The moving average of weights, of their masters where they have some; and both in each other's place.
#include <algorithm>
#include <utility>

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

void exchange_halves(BFloat16* high, int16_t* low, float* ema, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const float trained = join_float({high[i].bits, low[i]});
    const SplitFloat halves = split_float(std::exchange(ema[i], trained));
    high[i].bits = halves.high;
    low[i] = halves.low;
  }
}

void run_exchange(const KernelArgs& args, Stream& stream) {
  float* ema = args.out[1].as<float>();
  const TensorArg &w = args.out[0], &number = args.out.size() > 2 ? args.out[2] : w;
  for_pieces(stream.pool(), w.elems(), kElemsPerTask, [&](int64_t begin, int64_t end, int) {
    if (number.type.dtype == DType::I16)
      return exchange_halves(w.as<BFloat16>(), number.as<int16_t>(), ema, begin, end);
    auto* trained = number.as<float>();
    std::swap_ranges(trained + begin, trained + end, ema + begin);
    if (w.type.dtype != DType::F16) return;
    for (int64_t i = begin; i < end; ++i) w.as<Half>()[i] = to_half(trained[i]);
  });
}

bool supports_exchange(const CallSignature& call) {
  if (call.in[1].dtype != DType::F32) return false;
  if (call.in.size() == 2) return call.in[0].dtype == DType::F32;
  return is_half(call.in[0].dtype) && call.in[2].dtype == master_dtype(call.in[0].dtype);
}

}  // namespace

void add_ema_kernels(KernelRegistry& registry) {
  registry.add({"cpu.ema", Op::Ema, supports, nullptr, run});
  registry.add({"cpu.exchange_weights", Op::ExchangeWeights, supports_exchange, nullptr, run_exchange});
}

}  // namespace tandem::cpu
