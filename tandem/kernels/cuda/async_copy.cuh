// Copies of 16 bytes from global to shared memory that a thread starts and does not wait for. They come in
// groups: what was started since the last end_copy_group(). A thread that has waited sees its own copies;
// others see them after a barrier.
#pragma once

namespace tandem::cuda {

__device__ __forceinline__ void copy_async(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
}

__device__ __forceinline__ void end_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all groups but the latest kPending have arrived.
template <int kPending>
__device__ __forceinline__ void wait_copy_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace tandem::cuda
