// The loss scale of fp16, done as tandem/runtime/loss_scaler_step.h says: a thread does it all, and no host
// waits for it.
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/device/queue_of.h"
#include "tandem/kernels/cuda/optimizer/optimizer_kernels.h"
#include "tandem/runtime/loss_scaler_step.h"

namespace tandem::cuda {
namespace {

__global__ void scale_loss_kernel(const float* scale, const double* scaler, float* scaled) {
  *scaled = scale_loss(*scale, scaler);
}

__global__ void unscale_hyper_kernel(const float* hyper, int64_t slots, const double* scaler,
                                     float* unscaled) {
  for (int64_t i = 0; i < slots; ++i) unscaled[i] = hyper[i];
  unscaled[kHyperInvScale] = inverse_loss_scale(scaler);
}

__global__ void next_loss_scale_kernel(double* scaler, const double* norm, int64_t window) {
  next_loss_scale(scaler, norm, window);
}

void run_scale_loss(const KernelArgs& args, Stream& stream) {
  scale_loss_kernel<<<1, 1, 0, queue_of(stream)>>>(args.in[0].as<const float>(),
                                                   args.in[1].as<const double>(), args.out[0].as<float>());
  check_launch("scale_loss");
}

void run_unscale_hyper(const KernelArgs& args, Stream& stream) {
  unscale_hyper_kernel<<<1, 1, 0, queue_of(stream)>>>(args.in[0].as<const float>(), args.in[0].elems(),
                                                      args.in[1].as<const double>(), args.out[0].as<float>());
  check_launch("unscale_hyper");
}

void run_next_loss_scale(const KernelArgs& args, Stream& stream) {
  next_loss_scale_kernel<<<1, 1, 0, queue_of(stream)>>>(
      args.out[0].as<double>(), args.in[1].as<const double>(), args.attrs.integer("window"));
  check_launch("next_loss_scale");
}

bool always(const CallSignature&) { return true; }  // each op has one type

}  // namespace

void add_loss_scaler_kernels(KernelRegistry& registry) {
  registry.add({"cuda.scale_loss", Op::ScaleLoss, always, nullptr, run_scale_loss});
  registry.add({"cuda.unscale_hyper", Op::UnscaleHyper, always, nullptr, run_unscale_hyper});
  registry.add({"cuda.next_loss_scale", Op::NextLossScale, always, nullptr, run_next_loss_scale});
}

}  // namespace tandem::cuda
