#include "tandem/kernels/cpu/loss/loss_kernels.h"

#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {

void store_loss(const LossSums& sums, const TensorArg& stats) {
  stats.as<double>()[0] = sums.nll;
  stats.as<double>()[1] = sums.correct;
}

void add_loss_kernels(KernelRegistry& registry) {
  add_cross_entropy_kernels(registry);
  add_linear_cross_entropy_kernels(registry);
  add_vocab_loss_kernels(registry);
  add_measure_kernels(registry);
}

}  // namespace tandem::cpu
