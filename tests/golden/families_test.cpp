// Every family of the llama builder against Hugging Face's own class (make_families.py): logits, loss, every
// gradient and 20 steps of AdamW. Each key that makes a family is then left out, and the logits must show it.
#include <algorithm>
#include <cmath>
#include <set>

#include "tandem/compile/compile_step.h"
#include "tandem/config/load.h"
#include "tandem/config/print.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/kernels/cuda/backend.h"
#include "tandem/kernels/cuda/device/devices.h"
#include "tandem/models/model.h"
#include "tandem/runtime/initialize.h"
#include "tandem/runtime/session.h"
#include "tests/golden/family_golden_test.h"

namespace tandem {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(TANDEM_GOLDEN_DIR) / "families";

// The model of a record, without one of its keys.
ModelConfig model_of(const nlohmann::json& keys, const std::string& without = "") {
  std::vector<Override> overrides;
  for (const auto& [key, value] : keys.items()) {
    if (key == without || key == "vocab") continue;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    overrides.push_back({fmt::format("model.{}={}", key, text)});
  }
  ModelConfig model = parse_config("device: cpu\n", "golden", overrides).config.model;
  model.vocab = keys["vocab"];  // smaller than that of any tokenizer
  return model;
}

class FamilyRun {
 public:
  FamilyRun(const FamilyGolden& golden, const ModelConfig& model, Precision precision,
            Backend backend = cpu::make_backend())
      : golden_(golden),
        tokens_(golden.flat("tokens")),
        targets_(golden.flat("targets")),
        graph_(build_model(model, golden.record["batch"].get<int64_t>())),
        precision_(precision),
        backend_(std::move(backend)) {}

  // The largest |difference| / (1e-5 + 1e-4 |x|).
  double logits() {
    Session session(compile_forward(graph_, options(), ForwardOutput::Logits), backend_, pool_);
    set_weights(session);
    const Executable& eval = session.step().eval;
    session.write(eval, "tokens", std::as_bytes(std::span(tokens_)));
    session.run_eval();
    const auto bytes = session.read(eval, "logits");
    const auto* got = reinterpret_cast<const float*>(bytes.data());
    TANDEM_CHECK(bytes.size() == golden_.logits.size() * sizeof(float));
    double worst = 0;
    for (size_t i = 0; i < golden_.logits.size(); ++i) {
      const double want = golden_.logits[i];
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want) / (1e-5 + 1e-4 * std::abs(want)));
    }
    return worst;
  }

  struct Training {
    std::vector<double> losses;
    std::map<std::string, double>
        gradients;  // |difference| / |gradient| of each parameter, in the first step
  };
  Training train(int steps) {
    Session session(compile_step(graph_, options()), backend_, pool_);
    set_weights(session);
    Training result;
    const Executable &pass = session.step().pass, &update = session.step().update;
    const auto counted = static_cast<float>(
        std::count_if(targets_.begin(), targets_.end(), [](int32_t target) { return target >= 0; }));
    const float scale = 1.0f / counted;
    for (int step = 0; step < steps; ++step) {
      session.write(pass, "tokens", std::as_bytes(std::span(tokens_)));
      session.write(pass, "targets", std::as_bytes(std::span(targets_)));
      session.write(pass, "scale", std::as_bytes(std::span(&scale, 1)));
      session.run_pass();
      const double nll = *reinterpret_cast<const double*>(session.read(pass, "stats").data());
      result.losses.push_back(nll / static_cast<double>(counted));
      if (step == 0) result.gradients = compare_gradients(session);
      const float hyper[] = {golden_.record["lr"],
                             golden_.record["decay"],
                             static_cast<float>(step + 1),
                             1.0f,
                             1e9f,
                             0,
                             0,
                             golden_.record["betas"][0],
                             golden_.record["betas"][1],
                             golden_.record["eps"]};
      session.write(update, "hyper", std::as_bytes(std::span(hyper)));
      session.run_update();
    }
    return result;
  }

 private:
  CompileOptions options() {
    CompileOptions options;
    options.precision = precision_policy(precision_);
    options.fuse = backend_.fuse;
    options.choose = choose_from(backend_, pool_.num_threads());
    return options;
  }

  // Those that transformers' model has; the others stay as they begin.
  void set_weights(Session& session) {
    session.initialize(1);
    for (const Persistent& item : session.step().persistents) {
      if (!item.name.starts_with("weights:") && !item.name.starts_with("master:")) continue;
      const std::string& name = item.pieces[0].tensor;
      const auto values = golden_.weights.of(name);
      if (!values) continue;
      if (static_cast<int64_t>(values->size()) != item.slice.type.shape.elems())
        throw ConfigError("{}: {} elements, found {}", name, item.slice.type.shape.elems(), values->size());
      std::vector<std::byte> stored(static_cast<size_t>(item.slice.type.bytes()));
      round_to(stored, item.slice.type.dtype, std::as_bytes(std::span(*values)), pool_);
      session.write_buffer(item.slice, 0, stored);
    }
    session.refresh_weights();
  }

  std::map<std::string, double> compare_gradients(const Session& session) const {
    std::map<std::string, double> differences;
    for (const Persistent& item : session.step().persistents) {
      constexpr std::string_view kPrefix = "grads:";
      if (!item.name.starts_with(kPrefix) || item.slice.type.dtype != DType::F32) continue;
      const std::string name = item.name.substr(kPrefix.size());
      const auto want = golden_.gradients.of(name);
      TANDEM_CHECK(want.has_value(), "no gradient of {}", name);
      std::vector<float> got(want->size());
      session.read_buffer(item.slice, 0, std::as_writable_bytes(std::span(got)));
      double difference = 0, size = 0;
      for (size_t i = 0; i < want->size(); ++i) {
        difference += std::pow(static_cast<double>(got[i]) - static_cast<double>((*want)[i]), 2);
        size += std::pow(static_cast<double>((*want)[i]), 2);
      }
      differences[name] = std::sqrt(difference / size);
    }
    return differences;
  }

  const FamilyGolden& golden_;
  std::vector<int32_t> tokens_, targets_;
  Graph graph_;
  Precision precision_;
  Backend backend_;
  ThreadPool pool_{2};
};

class Families : public testing::TestWithParam<std::string> {};

void follow_in_fp32(const std::string& family, Backend backend) {
  const FamilyGolden golden(kFolder / family);
  FamilyRun run(golden, model_of(golden.record["model"]), Precision::Fp32, std::move(backend));
  EXPECT_LE(run.logits(), 1);
  const auto losses = golden.record["losses"].get<std::vector<double>>();
  ASSERT_EQ(losses.size(), 20u);
  const FamilyRun::Training training = run.train(20);
  EXPECT_NEAR(training.losses[0], golden.record["loss"].get<double>(), 1e-5);
  EXPECT_GT(training.gradients.size(), 20u);
  for (const auto& [name, difference] : training.gradients) EXPECT_LE(difference, 1e-4) << name;
  for (size_t step = 0; step < losses.size(); ++step)
    EXPECT_NEAR(training.losses[step], losses[step], 1e-5 * losses[step]) << step;
}

void follow_in_bf16(const std::string& family, Backend backend) {
  const FamilyGolden golden(kFolder / family);
  const FamilyRun::Training training =
      FamilyRun(golden, model_of(golden.record["model"]), Precision::Bf16, std::move(backend)).train(20);
  for (size_t step = 0; step < training.losses.size(); ++step) {
    const double want = golden.record["losses"][step];
    EXPECT_NEAR(training.losses[step], want, 2e-2 * want) << step;
  }
}

TEST_P(Families, FollowTransformersInFp32) { follow_in_fp32(GetParam(), cpu::make_backend()); }
TEST_P(Families, FollowTransformersInBf16) { follow_in_bf16(GetParam(), cpu::make_backend()); }

TEST_P(Families, FollowTransformersOnAGpu) {
  if (!cuda::is_built() || cuda::devices().empty()) GTEST_SKIP() << "no GPU on this machine";
  follow_in_fp32(GetParam(), cuda::make_backend(cpu::make_backend().kernels, {}));
  follow_in_bf16(GetParam(), cuda::make_backend(cpu::make_backend().kernels, {}));
}

// The comparison sees each key: without it, other logits come out, or the weights do not fit.
TEST_P(Families, AreMadeByTheirKeys) {
  const FamilyGolden golden(kFolder / GetParam());
  const nlohmann::json& keys = golden.record["model"];
  const std::set<std::string> sizes = {"family",   "layers", "width", "heads",
                                       "kv_heads", "ffn",    "vocab", "context"};
  Config with, without;
  with.model = model_of(keys);
  int left_out = 0;
  for (const auto& [key, value] : keys.items()) {
    if (sizes.contains(key)) continue;
    SCOPED_TRACE(key);
    try {
      without.model = model_of(keys, key);
      if (to_json(with) == to_json(without)) continue;
      ++left_out;
      EXPECT_GT(FamilyRun(golden, without.model, Precision::Fp32).logits(), 2);
    } catch (const ConfigError& error) {
      EXPECT_TRUE(key == "head" || key == "rope_dims") << error.what();
    }
  }
  EXPECT_GE(left_out, 3);
}

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}
INSTANTIATE_TEST_SUITE_P(Golden, Families, testing::ValuesIn(families()),
                         [](const auto& info) { return info.param; });

TEST(AllFamilies, AreThere) { EXPECT_EQ(families().size(), 12u); }

}  // namespace
}  // namespace tandem
