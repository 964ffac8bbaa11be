// Marks a function that CUDA kernels call as well as the CPU, where both must give the same bits.
#pragma once

#ifdef __CUDACC__
#define TANDEM_HOST_DEVICE __host__ __device__
#else
#define TANDEM_HOST_DEVICE
#endif
