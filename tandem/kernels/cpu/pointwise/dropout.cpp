#include "tandem/kernels/cpu/pointwise/dropout.h"

#include "tandem/kernels/cpu/pointwise/pointwise.h"
#include "tandem/runtime/dropout_mask.h"

namespace tandem::cpu {
namespace {

float widen(float x) { return x; }
float widen(BFloat16 x) { return to_float(x); }
float widen(Half x) { return to_float(x); }
void narrow(float x, float& y) { y = x; }
void narrow(float x, BFloat16& y) { y = to_bfloat16(x); }
void narrow(float x, Half& y) { y = to_half(x); }

// Columns [begin, end) of a row, whose element in its sample is `element`: all from one block of numbers.
template <typename T>
void drop(const DropoutMask& mask, const PhiloxBlock& block, int64_t element, const T* x, T* y, int64_t begin,
          int64_t end) {
  for (int64_t col = begin; col < end; ++col) {
    const bool dropped = block.word[(element + col) % 4] < mask.threshold;
    narrow(dropped ? 0.0f : widen(x[col]) * mask.scale, y[col]);
  }
}

template <typename T>
void drop_row(const DropoutMask& mask, const DropoutKey& key, int64_t element, const T* x, T* y) {
  for (int64_t col = 0; col < mask.width;) {
    const int64_t at = element + col, end = std::min(mask.width, col + 4 - at % 4);
    drop(mask, dropout_block(key, at / 4), element, x, y, col, end);
    col = end;
  }
}

void run(const KernelArgs& args, Stream& stream) {
  const DropoutMask mask = dropout_mask(args);
  const uint64_t first = first_sample(args.in[1].as<const int32_t>());
  with_storage(args.out[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.in[0].as<const T>();
    T* y = args.out[0].as<T>();
    for_row_groups(stream.pool(), args.out[0].type.shape.rows(), mask.width,
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t i = begin; i < end; ++i) {
                       const DropoutRow row = dropout_row(mask, i);
                       drop_row(mask, dropout_key(mask, first + static_cast<uint64_t>(row.sample)), row.begin,
                                x + i * mask.width, y + i * mask.width);
                     }
                   });
  });
}

bool supports(const CallSignature& call) { return is_storage(call.in[0].dtype); }

}  // namespace

void add_dropout_kernels(KernelRegistry& registry) {
  registry.add({"cpu.dropout", Op::Dropout, supports, nullptr, run});
}

}  // namespace tandem::cpu
