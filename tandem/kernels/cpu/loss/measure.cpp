// The mean of a tensor's elements or of their squares, in double. Sums are made piece by piece, of a size
// that does not depend on the threads, and added up in order.
#include <vector>

#include "tandem/kernels/cpu/loss/loss_kernels.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"
#include "tandem/runtime/storage.h"

namespace tandem::cpu {
namespace {

double number(float x) { return x; }
template <typename Half>
double number(Half x) {
  return to_float(x);
}

template <typename T>
double sum_of(const T* x, int64_t begin, int64_t end, bool squares) {
  double sum = 0;
  for (int64_t i = begin; i < end; ++i) {
    const double value = number(x[i]);
    sum += squares ? value * value : value;
  }
  return sum;
}

void run(const KernelArgs& args, Stream& stream) {
  const TensorArg& x = args.in[0];
  const bool squares = args.attrs.integer("squares") != 0;
  std::vector<double> sums(static_cast<size_t>((x.elems() + kElemsPerTask - 1) / kElemsPerTask));
  for_pieces(stream.pool(), x.elems(), kElemsPerTask, [&](int64_t begin, int64_t end, int) {
    with_storage(x.type.dtype, [&]<typename T>(T) {
      sums[static_cast<size_t>(begin / kElemsPerTask)] = sum_of(x.as<const T>(), begin, end, squares);
    });
  });
  double sum = 0;
  for (double part : sums) sum += part;
  *args.out[0].as<double>() = sum / static_cast<double>(x.elems());
}

bool supports(const CallSignature& call) { return is_storage(call.in[0].dtype); }

}  // namespace

void add_measure_kernels(KernelRegistry& registry) {
  registry.add({"cpu.measure", Op::Measure, supports, nullptr, run});
}

}  // namespace tandem::cpu
