// Lion's kernels, reference and fast, against 30 steps of a plain Python program (make_lion.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tandem/base/thread_pool.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/runtime/kernel.h"

namespace tandem {
namespace {

void expect_near(const std::vector<float>& got, const nlohmann::json& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i].get<double>(), 1e-5) << what << " element " << i;
}

TEST(Lion, FollowsThePublishedRule) {
  std::ifstream file(TANDEM_GOLDEN_DIR "/lion.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  const auto start = golden["start"].get<std::vector<float>>();
  const auto elems = static_cast<int64_t>(start.size());
  const KernelRegistry kernels = cpu::make_backend().kernels;
  ThreadPool pool(1);
  for (const std::string name : {"ref.lion", "cpu.lion"}) {
    // One parameter decays, the other does not: weight, gradient and momentum of each.
    const std::vector<float> zeros(start.size());
    std::vector<std::vector<float>> tensors = {start, zeros, zeros, start, zeros, zeros};
    double norm[2] = {1, 1};
    float step = 0;
    for (const nlohmann::json& row : golden["gradients"]) {
      float hyper[] = {golden["lr"], golden["decay"], ++step, 1, 0, 0, 0, golden["beta1"], golden["beta2"]};
      tensors[1] = tensors[4] = row.get<std::vector<float>>();
      std::vector<TensorArg> in = {{hyper, {DType::F32, {9}}}, {norm, {DType::F64, {2}}}};
      for (std::vector<float>& tensor : tensors) in.push_back({tensor.data(), {DType::F32, {elems}}});
      const std::span<const TensorArg> out = std::span(in).subspan(2);
      const Attrs attrs{{"masters", int64_t{0}}, {"decay", "1,0"}};
      Stream stream(pool);
      kernels.by_name(name).run({in, out, attrs, {}}, stream);
    }
    expect_near(tensors[0], golden["decayed"]["weights"], name + " decayed weight");
    expect_near(tensors[2], golden["decayed"]["momenta"], name + " decayed momentum");
    expect_near(tensors[3], golden["plain"]["weights"], name + " weight");
    expect_near(tensors[5], golden["plain"]["momenta"], name + " momentum");
    EXPECT_EQ(tensors[3][0], start[0]) << "without a gradient nothing moves";
  }
}

}  // namespace
}  // namespace tandem
