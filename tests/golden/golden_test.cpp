// 20 training steps against PyTorch's losses (make_golden.py): the whole compiled step, fast kernels,
// optimizer and clipping, on the CPU in fp32 to 1e-5 and in bf16 to 2e-2 relative, on a GPU to 1e-4 and 1e-2.
// TANDEM_GOLDEN_DIR in the environment names a folder of other goldens, of any number of steps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tandem/base/rng.h"
#include "tandem/compile/compile_step.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/kernels/cuda/backend.h"
#include "tandem/kernels/cuda/device/devices.h"
#include "tandem/models/model.h"
#include "tandem/runtime/initialize.h"
#include "tandem/runtime/session.h"

namespace tandem {
namespace {

// Element i of the noise called `name`, in [-1, 1): `noise` of make_golden.py.
float golden_noise(std::string_view name, uint64_t i) {
  const uint64_t x = mix_bits(hash_name(name) + (i + 1) * 0x9e3779b97f4a7c15ull);
  return static_cast<float>(static_cast<double>(x >> 40) * 0x1p-23 - 1.0);
}

int32_t golden_integer(std::string_view name, uint64_t i, int64_t limit) {
  const double u = (static_cast<double>(golden_noise(name, i)) + 1.0) / 2.0;
  return static_cast<int32_t>(
      std::min<int64_t>(static_cast<int64_t>(u * static_cast<double>(limit)), limit - 1));
}

class GoldenRun {
 public:
  GoldenRun(const nlohmann::json& golden, const Backend& backend)
      : model_(model_config(golden["model"])),
        batch_(golden["model"]["batch"].get<int64_t>()),
        lr_(golden.value("lr", 1e-3f)),
        optimizer_(optimizer_named(golden.value("optimizer", "adamw"))),
        backend_(backend),
        pool_(2),
        session_(compile(golden["precision"] == "bf16" ? Precision::Bf16 : Precision::Fp32), backend, pool_) {
    session_.initialize(1);
    for (const Persistent& item : session_.step().persistents) set_start(item);
    session_.refresh_weights();
  }

  struct Result {
    double loss;
    double grad_norm;
  };
  Result step(int step) {
    const Executable& pass = session_.step().pass;
    const int64_t targets = write_batch(step % 2);
    const float scale = 1.0f / static_cast<float>(targets);
    session_.write(pass, "scale", std::as_bytes(std::span(&scale, 1)));
    session_.run_pass();
    const double nll = *reinterpret_cast<const double*>(session_.read(pass, "stats").data());
    std::vector<float> hyper = {lr_,   0.1f, static_cast<float>(step + 1), 1.0f, 1.0f, 0, 0, 0.9f,
                                0.95f, 1e-8f};
    if (optimizer_ == OptimizerKind::Muon) hyper.push_back(0.95f);
    session_.write(session_.step().update, "hyper", std::as_bytes(std::span(hyper)));
    session_.run_update();
    const auto* norm = reinterpret_cast<const double*>(session_.read(session_.step().update, "norm").data());
    return {nll / static_cast<double>(targets), norm[0]};
  }

 private:
  static ModelConfig model_config(const nlohmann::json& json) {
    ModelConfig config;
    const std::string family = json["family"];
    config.family = family == "gpt2" ? Family::Gpt2 : family == "llama" ? Family::Llama : Family::Resnet;
    config.width = json["width"];
    if (family == "resnet") {
      config.image_size = json["image_size"];
      config.channels = json["channels"];
      config.classes = json["classes"];
      config.blocks = json["blocks"].get<std::vector<int64_t>>();
      config.norm = json["norm"] == "group" ? ImageNorm::Group : ImageNorm::Batch;
      config.groups = json["groups"];
      config.bottleneck = json.value("bottleneck", false);
      config.stem = json.value("stem", "small") == "imagenet" ? ImageStem::Imagenet : ImageStem::Small;
      return config;
    }
    config.layers = json["layers"];
    config.heads = json["heads"];
    config.kv_heads = json["kv_heads"];
    config.context = json["context"];
    config.vocab = json["vocab"];
    config.ffn = json["ffn"];
    config.tied = family == "gpt2";
    config.qkv_bias = family == "gpt2";
    return config;
  }

  CompiledStep compile(Precision precision) {
    CompileOptions options;
    options.precision = precision_policy(precision);
    options.optimizer = optimizer_;
    options.fuse = backend_.fuse;
    options.overwrite_gradients = backend_.overwrites_gradients;
    options.choose = choose_from(backend_, pool_.num_threads());
    return compile_step(build_model(model_, batch_), options);
  }

  // The amplitude of each weight, as in make_golden.py.
  double amplitude(std::string_view name, const Shape& shape) const {
    if (name == "embed.weight" || name == "pos.weight") return 0.05;
    if (model_.family != Family::Resnet) return 0.08;
    if (shape.rank() == 4) return std::sqrt(2.0 / static_cast<double>(shape[1] * shape[2] * shape[3]));
    return 0.3;
  }

  void set_start(const Persistent& item) {
    if (!item.name.starts_with("weights:") && !item.name.starts_with("master:")) return;
    const std::string& name = item.pieces[0].tensor;
    const Shape& shape = item.pieces[0].shape;
    std::vector<float> values(static_cast<size_t>(shape.elems()));
    for (size_t i = 0; i < values.size(); ++i) {
      const float x = golden_noise(name, i);
      if (shape.rank() == 1) {
        values[i] = item.pieces[0].init == "ones" ? 1.0f + 0.1f * x : 0.02f * x;
      } else {
        values[i] = static_cast<float>(amplitude(name, shape)) * x;
      }
    }
    std::vector<std::byte> stored(static_cast<size_t>(item.slice.type.bytes()));
    round_to(stored, item.slice.type.dtype, std::as_bytes(std::span(values)), pool_);
    session_.write_buffer(item.slice, 0, stored);
  }

  int64_t write_batch(int index) {
    const Executable& pass = session_.step().pass;
    const std::string suffix = fmt::format(".{}", index);
    int64_t counted = 0;
    for (const Binding& input : pass.inputs) {
      const auto elems = static_cast<size_t>(input.slice.type.shape.elems());
      if (input.name == "images") {
        std::vector<float> values(elems);
        for (size_t i = 0; i < elems; ++i) values[i] = golden_noise("images" + suffix, i);
        session_.write(pass, "images", std::as_bytes(std::span(values)));
      } else if (input.name == "tokens" || input.name == "targets") {
        const bool tokens = model_.is_language_model();
        std::vector<int32_t> ids(elems);
        for (size_t i = 0; i < elems; ++i) {
          ids[i] = golden_integer(input.name + suffix, i, tokens ? model_.vocab : model_.classes);
          const bool tail = tokens && static_cast<int64_t>(i) % model_.context >= model_.context - 3;
          if (input.name == "targets" && tail) ids[i] = -1;
          if (input.name == "targets") counted += ids[i] >= 0 ? 1 : 0;
        }
        session_.write(pass, input.name, std::as_bytes(std::span(ids)));
      }
    }
    return counted;
  }

  ModelConfig model_;
  int64_t batch_;
  float lr_;
  OptimizerKind optimizer_;
  const Backend& backend_;
  ThreadPool pool_;
  Session session_;
};

void compare(const std::string& name, double tolerance, const Backend& backend = cpu::make_backend()) {
  const char* folder = std::getenv("TANDEM_GOLDEN_DIR");
  std::ifstream file(std::string(folder != nullptr ? folder : TANDEM_GOLDEN_DIR) + "/" + name + ".json");
  ASSERT_TRUE(file) << name;
  const nlohmann::json golden = nlohmann::json::parse(file);
  GoldenRun run(golden, backend);
  tolerance = golden.value("tolerance", tolerance);
  const auto steps = static_cast<int>(golden["losses"].size());
  ASSERT_GE(steps, 20) << name;
  for (int step = 0; step < steps; ++step) {
    const GoldenRun::Result result = run.step(step);
    const double loss = golden["losses"][static_cast<size_t>(step)],
                 norm = golden["grad_norms"][static_cast<size_t>(step)];
    EXPECT_NEAR(result.loss, loss, tolerance * loss) << name << " step " << step;
    if (step == 0) {
      EXPECT_NEAR(result.grad_norm, norm, 2 * tolerance * norm) << name;
    }
  }
}

TEST(Golden, Gpt2Fp32FollowsPyTorch) { compare("gpt2_fp32", 1e-5); }
TEST(Golden, LlamaFp32FollowsPyTorch) { compare("llama_fp32", 1e-5); }
TEST(Golden, ResnetFp32FollowsPyTorch) { compare("resnet_fp32", 1e-5); }
TEST(Golden, ResnetWithGroupNormFp32FollowsPyTorch) { compare("resnet_group_fp32", 1e-5); }
TEST(Golden, ResnetWithImagenetStemFp32FollowsPyTorch) { compare("resnet_imagenet_fp32", 1e-5); }
TEST(Golden, ResnetWithImagenetStemBf16FollowsPyTorch) { compare("resnet_imagenet_bf16", 2e-2); }
TEST(Golden, ResnetWithBottlenecksFp32FollowsPyTorch) { compare("resnet_bottleneck_fp32", 1e-5); }
TEST(Golden, ResnetWithBottlenecksBf16FollowsPyTorch) { compare("resnet_bottleneck_bf16", 2e-2); }
TEST(Golden, Gpt2Bf16FollowsPyTorch) { compare("gpt2_bf16", 2e-2); }
TEST(Golden, LlamaBf16FollowsPyTorch) { compare("llama_bf16", 2e-2); }
TEST(Golden, ResnetBf16FollowsPyTorch) { compare("resnet_bf16", 2e-2); }
TEST(Golden, ResnetWithGroupNormBf16FollowsPyTorch) { compare("resnet_group_bf16", 2e-2); }

class GoldenOnCuda : public testing::TestWithParam<std::string> {};

TEST_P(GoldenOnCuda, FollowsPyTorch) {
  if (!cuda::is_built() || cuda::devices().empty()) GTEST_SKIP() << "no GPU on this machine";
  const Backend backend = cuda::make_backend(cpu::make_backend().kernels, {});
  // The goldens' gradients of convolutions are sums in another order, which twenty steps carry on.
  const bool images = GetParam().starts_with("resnet");
  compare(GetParam(), GetParam().ends_with("fp32") ? 1e-4 : images ? 2e-2 : 1e-2, backend);
}
INSTANTIATE_TEST_SUITE_P(Golden, GoldenOnCuda,
                         testing::Values("gpt2_fp32", "llama_fp32", "gpt2_bf16", "llama_bf16", "resnet_fp32",
                                         "resnet_bf16", "resnet_group_fp32", "resnet_group_bf16",
                                         "resnet_imagenet_fp32", "resnet_imagenet_bf16",
                                         "resnet_bottleneck_fp32", "resnet_bottleneck_bf16"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem
