#include <algorithm>

#include "tandem/ir/op.h"
#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

HostTensor tensor_of(DType dtype, const std::vector<double>& values) {
  HostTensor tensor(dtype, Shape({static_cast<int64_t>(values.size())}));
  for (size_t i = 0; i < values.size(); ++i) cpu::ref::set(tensor.arg(), static_cast<int64_t>(i), values[i]);
  return tensor;
}

// What the GPU gives, which must be the reference's bits.
HostTensor result_of(const Call& call) {
  const std::vector<HostTensor> got = run_on_gpu(call);
  EXPECT_EQ(got, cpu::run(cpu::reference_kernel(call.op), call, cpu::pool_of(1))) << op_name(call.op);
  return got[0];
}

TEST(CudaLossScaler, ScalesAndUnscalesToTheReferencesBits) {
  TANDEM_NEEDS_GPU();
  for (const double scale : {1.0, 65536.0, 1e7, 3e-5}) {
    const HostTensor scaler = tensor_of(DType::F64, {scale, 5});
    const HostTensor loss = tensor_of(DType::F32, {1.0 / 3});
    result_of({Op::ScaleLoss, {loss, scaler}, {loss.type}, {-1}, {}});
    const HostTensor hyper = tensor_of(DType::F32, {1, 2, 3, 1, 8, 6, 7});
    const HostTensor unscaled = result_of({Op::UnscaleHyper, {hyper, scaler}, {hyper.type}, {-1}, {}});
    EXPECT_EQ(unscaled.at(kHyperClip), 8);
    EXPECT_FLOAT_EQ(static_cast<float>(unscaled.at(kHyperInvScale)), static_cast<float>(1 / scale));
  }
}

TEST(CudaLossScaler, FallsAndGrowsAsTheReferenceDoes) {
  TANDEM_NEEDS_GPU();
  const auto next = [](double scale, double good_steps, bool finite) {
    const HostTensor scaler = tensor_of(DType::F64, {scale, good_steps});
    const HostTensor norm = tensor_of(DType::F64, {4, finite ? 1.0 : 0.0});
    return result_of({Op::NextLossScale, {scaler, norm}, {scaler.type}, {0}, {{"window", int64_t{3}}}});
  };
  for (const double scale : {1.0, 1.5, 1024.0, 1e7, 16777216.0}) {
    for (const double good_steps : {0.0, 1.0, 2.0, 9.0}) {
      EXPECT_EQ(next(scale, good_steps, false).at(kScalerScale), std::max(1.0, scale / 2));
      const bool grows = good_steps >= 2;
      const HostTensor after = next(scale, good_steps, true);
      EXPECT_EQ(after.at(kScalerScale), grows ? std::min(16777216.0, scale * 2) : scale);
      EXPECT_EQ(after.at(kScalerGoodSteps), grows ? 0 : good_steps + 1);
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
