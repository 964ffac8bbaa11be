// The loss scale of fp16. There are no faster kernels: each works on a number or two.
#include <algorithm>

#include "tandem/kernels/cpu/ref/ref_tensor.h"
#include "tandem/runtime/loss_scaler_step.h"

namespace tandem::cpu::ref {
namespace {

void run_scale_loss(const KernelArgs& args, Stream&) {
  *args.out[0].as<float>() = scale_loss(*args.in[0].as<float>(), args.in[1].as<double>());
}

void run_unscale_hyper(const KernelArgs& args, Stream&) {
  auto* hyper = args.out[0].as<float>();
  std::copy_n(args.in[0].as<float>(), args.in[0].elems(), hyper);
  hyper[kHyperInvScale] = inverse_loss_scale(args.in[1].as<double>());
}

void run_next_loss_scale(const KernelArgs& args, Stream&) {
  next_loss_scale(args.out[0].as<double>(), args.in[1].as<double>(), args.attrs.integer("window"));
}

}  // namespace

void add_loss_scaler(KernelRegistry& registry) {
  add(registry, Op::ScaleLoss, run_scale_loss);
  add(registry, Op::UnscaleHyper, run_unscale_hyper);
  add(registry, Op::NextLossScale, run_next_loss_scale);
}

}  // namespace tandem::cpu::ref
