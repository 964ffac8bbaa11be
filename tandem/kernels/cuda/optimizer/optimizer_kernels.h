// The optimizer kernels by family.
#pragma once

#include "tandem/runtime/kernel.h"

namespace tandem::cuda {

void add_square_sums_kernels(KernelRegistry& registry);      // SquareSums, GlobalNorm
void add_update_kernels(KernelRegistry& registry);           // one for each optimizer
void add_parameter_sums_kernels(KernelRegistry& registry);   // what optimizers read of whole parameters
void add_loss_scaler_kernels(KernelRegistry& registry);      // ScaleLoss, UnscaleHyper, NextLossScale
void add_matrix_update_kernels(KernelRegistry& registry);    // what an update does with whole matrices
void add_factored_update_kernels(KernelRegistry& registry);  // squares by rows and columns
void add_ema_kernels(KernelRegistry& registry);

}  // namespace tandem::cuda
