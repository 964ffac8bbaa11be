#include "tandem/kernels/cpu/norm/norm_data_test.h"
#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

using cpu::for_ragged_shapes;
using cpu::kEps;
using cpu::NormData;
using cpu::slack_of;

void expect_forward_matches(const NormData& data) {
  const double slack = slack_of(data);
  expect_as_reference(data.layer_norm(data.a), slack);
  expect_as_reference(data.add_layer_norm(), slack);
  expect_as_reference(data.rms_norm(data.a), slack);
  expect_as_reference(data.add_rms_norm(), slack);
  expect_as_reference(cpu::with_plus_one(data.rms_norm(data.a)), 2 * slack);
  expect_as_reference(cpu::with_plus_one(data.add_rms_norm()), 2 * slack);
}

using cpu::with_again;

// The sums of dx are of what is stored: they differ by the rounding of every row.
void expect_gradients_match(const NormData& data, double slack) {
  const double sums_slack = slack + (is_half(data.storage) ? 0.02 : 1e-5) * static_cast<double>(data.rows);
  for (const bool with_dres : {false, true}) {
    expect_as_reference(data.layer_norm_grad(with_dres), slack);
    expect_as_reference(data.rms_norm_grad(with_dres), slack);
    expect_as_reference(with_sums(data.layer_norm_grad(with_dres), data.acc_dbeta), sums_slack);
    expect_as_reference(with_sums(data.rms_norm_grad(with_dres), data.acc_dbeta), sums_slack);
    expect_as_reference(with_again(data.layer_norm_grad(with_dres), data), slack);
    expect_as_reference(with_again(data.rms_norm_grad(with_dres), data), slack);
    expect_as_reference(with_again(cpu::with_plus_one(data.rms_norm_grad(with_dres)), data), 3 * slack);
  }
}

// Rows of one warp, of several, of whole blocks with threads to spare, and longer than a block holds.
struct WideShape {
  DType storage;
  int64_t rows, width;
};
const std::vector<WideShape> kWideShapes = {
    {DType::BF16, 41, 768}, {DType::F16, 9, 1600},  {DType::BF16, 9, 2048},  {DType::F16, 6, 4096},
    {DType::BF16, 5, 8192}, {DType::BF16, 3, 8200}, {DType::F32, 21, 768},   {DType::F32, 5, 1600},
    {DType::F32, 3, 4096},  {DType::F32, 3, 4100},  {DType::BF16, 2, 32768}, {DType::BF16, 2, 32776},
    {DType::F32, 2, 16384}, {DType::F16, 2, 20001},
};

TEST(CudaNorms, MatchReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    expect_forward_matches(NormData(storage, rows, width));
  });
}

TEST(CudaNorms, MatchReferenceForWideRows) {
  TANDEM_NEEDS_GPU();
  for (const WideShape& shape : kWideShapes) {
    SCOPED_TRACE(fmt::format("{} [{}, {}]", dtype_name(shape.storage), shape.rows, shape.width));
    expect_forward_matches(NormData(shape.storage, shape.rows, shape.width));
  }
}

// A one-pass variance would lose all its digits to the square of the mean.
TEST(CudaNorms, KeepTheVarianceOfRowsFarFromZero) {
  TANDEM_NEEDS_GPU();
  for (const int64_t width : {24, 31, 1024, 3000}) {
    NormData data(DType::F32, 5, width);
    data.a = random_tensor(DType::F32, {5, width}, 1, 1, 1000);
    expect_as_reference(data.layer_norm(data.a), 1e-3);
  }
}

TEST(CudaNorms, GiveTheBitsOfAddThenNorm) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const int64_t width : {5, 31, 64, 1000, 2048, 4096}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(storage), width));
      const NormData data(storage, 17, width);
      const auto sum = run_on_gpu(data.add(data.a, data.b));
      const auto layer = run_on_gpu(data.layer_norm(sum[0])), fused_layer = run_on_gpu(data.add_layer_norm());
      EXPECT_EQ(fused_layer[0], sum[0]);
      for (size_t k = 0; k < 3; ++k) EXPECT_EQ(fused_layer[k + 1], layer[k]);
      const auto rms = run_on_gpu(data.rms_norm(sum[0])), fused_rms = run_on_gpu(data.add_rms_norm());
      EXPECT_EQ(fused_rms[0], sum[0]);
      for (size_t k = 0; k < 2; ++k) EXPECT_EQ(fused_rms[k + 1], rms[k]);
    }
  }
}

TEST(CudaNormGrads, MatchReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    const NormData data(storage, rows, width);
    expect_gradients_match(data, 2 * slack_of(data));
  });
}

TEST(CudaNormGrads, MatchReferenceForWideRows) {
  TANDEM_NEEDS_GPU();
  for (const WideShape& shape : kWideShapes) {
    SCOPED_TRACE(fmt::format("{} [{}, {}]", dtype_name(shape.storage), shape.rows, shape.width));
    const NormData data(shape.storage, shape.rows, shape.width);
    expect_gradients_match(data, 2 * slack_of(data));
  }
}

// So many rows that teams of one warp and of two go round their stages more than once, and not all equally
// often.
TEST(CudaNormGrads, MatchReferenceWithManyRows) {
  TANDEM_NEEDS_GPU();
  const auto expect_match = [](DType storage, int64_t rows, int64_t width) {
    SCOPED_TRACE(fmt::format("{} [{}, {}]", dtype_name(storage), rows, width));
    const NormData data(storage, rows, width);
    expect_gradients_match(data, 4e-4 + 2 * slack_of(data));
  };
  for (const DType storage : kStorage) {
    expect_match(storage, 9000, 24);
    expect_match(storage, 2500, 27);
  }
  expect_match(DType::F32, 5000, 260);
  expect_match(DType::F32, 4500, 388);
}

TEST(CudaNormGrads, OverwriteFreshAccumulators) {
  TANDEM_NEEDS_GPU();
  for (const int64_t width : {31, 64, 768}) {
    const NormData data(DType::BF16, 100, width);
    for (Call call : {data.layer_norm_grad(true), data.rms_norm_grad(false)}) {
      call.attrs = {{"fresh", 1}};
      expect_as_reference(call, 2 * slack_of(data));
    }
  }
}

// With the statistics of the same device, in every combination, and without a change to what else they give.
TEST(CudaNormGrads, GiveTheNormsOutputAgain) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{
             {700, 5}, {700, 64}, {41, 768}, {9, 1600}, {9, 2048}, {3, 8200}, {2, 20001}}) {
      SCOPED_TRACE(fmt::format("{} [{}, {}]", dtype_name(storage), rows, width));
      const NormData data(storage, rows, width);
      const auto layer = run_on_gpu(data.layer_norm(data.a)), rms = run_on_gpu(data.rms_norm(data.a));
      for (const int options : {0, 1, 2, 3}) {
        const bool with_dres = options % 2 != 0, sums = options / 2 != 0;
        Call calls[] = {data.layer_norm_grad(with_dres), data.rms_norm_grad(with_dres)};
        calls[0].in[3] = layer[1], calls[0].in[4] = layer[2];
        calls[1].in[3] = rms[1];
        for (Call& call : calls) {
          const size_t y = call.out.size();  // behind the norm's own, before the sums
          Call again = with_again(call, data);
          if (sums) {
            call = with_sums(call, data.acc_dbeta);
            again = with_sums(again, data.acc_dbeta);
          }
          auto found = run_on_gpu(again);
          EXPECT_EQ(found[y], call.op == Op::LayerNormGrad ? layer[0] : rms[0]);
          found.erase(found.begin() + static_cast<ptrdiff_t>(y));
          EXPECT_EQ(found, run_on_gpu(call));
        }
      }
    }
  }
}

TEST(CudaNormGrads, GiveTheSameBitsInPlace) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const auto& [rows, width] :
         std::vector<std::pair<int64_t, int64_t>>{{700, 5}, {700, 64}, {40, 1000}, {3, 8200}}) {
      const NormData data(storage, rows, width);
      for (const bool with_dres : {false, true}) {
        const auto layer = run_on_gpu(data.layer_norm_grad(with_dres));
        const auto rms = run_on_gpu(data.rms_norm_grad(with_dres));
        for (const int shared : {0, 1}) {  // dy, x
          EXPECT_EQ(run_on_gpu(data.layer_norm_grad(with_dres, shared)), layer);
          EXPECT_EQ(run_on_gpu(data.rms_norm_grad(with_dres, shared)), rms);
        }
      }
    }
  }
}

TEST(CudaNormGrads, GiveTheBitsOfGradThenAdd) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const int64_t width : {31, 64, 1000}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(storage), width));
      const NormData data(storage, 50, width);
      auto layer = run_on_gpu(data.layer_norm_grad(false));
      layer[0] = run_on_gpu(data.add(layer[0], data.dres))[0];
      EXPECT_EQ(run_on_gpu(data.layer_norm_grad(true)), layer);
      auto rms = run_on_gpu(data.rms_norm_grad(false));
      rms[0] = run_on_gpu(data.add(rms[0], data.dres))[0];
      EXPECT_EQ(run_on_gpu(data.rms_norm_grad(true)), rms);
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
