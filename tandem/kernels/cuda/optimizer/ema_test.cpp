#include "tandem/base/split_float.h"
#include "tandem/kernels/cpu/optimizer/matrix_call_test.h"
#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

// The CPU's kernel takes over where the optimizer is offloaded.
TEST(CudaEma, HasTheBitsOfTheCpu) {
  TANDEM_NEEDS_GPU();
  const KernelRegistry registry = cpu::all_kernels();
  constexpr int64_t kElems = 16384 + 77;
  for (DType dtype : kStorage) {
    for (double count : {1, 2}) {
      for (double finite : {0, 1}) {
        const bool masters = is_half(dtype);
        Call call{Op::Ema, {}, {}, {2}, {{"decay", 0.99}, {"masters", int64_t{masters}}}};
        call.in = {cpu::doubles(DType::F32, {0.01, 0.1, count, 1, 0}), cpu::doubles(DType::F64, {1, finite}),
                   cpu::random_tensor(DType::F32, {kElems}, 1), cpu::random_tensor(dtype, {kElems}, 2)};
        if (masters) call.in.push_back(cpu::random_tensor(master_dtype(dtype), {kElems}, 3, 100));
        call.out = {call.in[2].type};
        EXPECT_EQ(run_on_gpu(call), cpu::run(registry.by_name("cpu.ema"), call, cpu::pool_of(1)));
      }
    }
  }
}

TEST(CudaExchangeWeights, HasTheBitsOfTheCpu) {
  TANDEM_NEEDS_GPU();
  const KernelRegistry registry = cpu::all_kernels();
  constexpr int64_t kElems = 16384 + 77;
  for (DType dtype : kStorage) {
    const bool masters = is_half(dtype);
    Call call{Op::ExchangeWeights, {}, {}, {0, 1}, {{"masters", int64_t{masters}}}};
    call.in = {cpu::random_tensor(dtype, {kElems}, 2), cpu::random_tensor(DType::F32, {kElems}, 1)};
    if (masters) {
      call.in.push_back(cpu::random_tensor(master_dtype(dtype), {kElems}, 3, 100));
      call.shares.push_back(2);
    }
    for (const HostTensor& tensor : call.in) call.out.push_back(tensor.type);
    EXPECT_EQ(run_on_gpu(call), cpu::run(registry.by_name("cpu.exchange_weights"), call, cpu::pool_of(1)));
  }
}

}  // namespace
}  // namespace tandem::cuda
