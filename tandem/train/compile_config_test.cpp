#include "tandem/train/compile_config.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/compile/passes/fp8.h"
#include "tandem/config/load.h"
#include "tandem/config/mesh.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/models/model.h"
#include "tandem/train/fit.h"

namespace tandem {
namespace {

Config with_narrow_gradients(std::string_view limit = "0") {
  const std::string yaml = fmt::format(
      "precision: bf16\nthreads: 1\n"
      "model: {{family: gpt2, layers: 2, width: 32, heads: 2, context: 64, vocab: 256}}\n"
      "train: {{batch: 16, micro_batch: 16}}\nmemory: {{gradients: bf16, limit: {}}}\n"
      "checkpoint: {{every: 0}}\n",
      limit);
  return parse_config(yaml, "config").config;
}

TEST(GradientsIn16Bits, AreRefusedWhereTheyAreAddedToWithWhatIsInTheWay) {
  const auto refusal = [](bool overwrites, const std::function<void(Config&)>& change) -> std::string {
    Backend backend = cpu::make_backend();
    backend.overwrites_gradients = overwrites;
    Config config = with_narrow_gradients();
    change(config);
    try {
      compile_config(config, compile_options(config, backend, MeshPosition::of(mesh_shape(config), 0)));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const auto nothing = [](Config&) {};
  const auto passes = [](Config& config) { config.train.micro_batch = 4; };
  const auto ranks = [](Config& config) {
    config.parallel.strategy = Strategy::Zero1;
    config.parallel.data = 2;
    config.train.micro_batch = 4;
  };
  EXPECT_EQ(refusal(true, nothing), "");
  EXPECT_EQ(refusal(true, ranks), "");
  EXPECT_NE(refusal(false, nothing).find("needs a GPU"), std::string::npos);
  EXPECT_NE(refusal(true, passes).find("several passes in 16 bits"), std::string::npos);
  const auto once = [&](Config& config) {
    ranks(config);
    config.parallel.sync = GradientSync::Step;
  };
  EXPECT_NE(refusal(true, once).find("parallel.sync: step"), std::string::npos);
  const auto wide = [](Config& config) { config.precision = Precision::Fp32; };
  EXPECT_NE(refusal(true, wide).find("needs precision bf16"), std::string::npos);
}

TEST(GradientsIn16Bits, DoNotConcernAForwardOnAnyMachine) {
  const Backend backend = cpu::make_backend();
  Config config = with_narrow_gradients();
  config.precision = Precision::Fp32;  // as `tandem sample` has it
  EXPECT_NO_THROW(
      compile_forward(build_model(config.model, 1), compile_options(config, backend), ForwardOutput::Logits));
}

TEST(RequireFit, NamesWhatSmallerMicroBatchesNeedToo) {
  Backend backend = cpu::make_backend();
  backend.overwrites_gradients = true;
  const Config config = with_narrow_gradients("1500KiB");
  const CompiledStep step = compile_config(config, compile_options(config, backend));
  try {
    require_fit(config, backend, step);
    FAIL() << "the plan fits: nothing is tested";
  } catch (const PlanError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("--set train.micro_batch="), std::string::npos) << message;
    EXPECT_NE(message.find("--set memory.gradients=fp32"), std::string::npos) << message;
  }
}

// 60 micro-batches times 21 ways to recompute.
TEST(RequireFit, CompilesFewOfTheChangesThatThereAre) {
  const Backend backend = cpu::make_backend();
  const auto config_with = [](int64_t limit) {
    return parse_config(
               fmt::format("threads: 1\nmodel: {{layers: 100, width: 8, heads: 2, context: 8, vocab: 256}}\n"
                           "train: {{batch: 5040, micro_batch: 5040}}\nmemory: {{limit: {}}}\n",
                           limit),
               "config")
        .config;
  };
  int num_compiled = 0;
  const BuildModel counted = [&](const ModelConfig& model, int64_t micro_batch) {
    ++num_compiled;
    return build_model(model, micro_batch);
  };
  const Config free = config_with(0);
  const CompiledStep step = compile_config(free, compile_options(free, backend));
  std::string message;
  const Config tight = config_with(total_bytes(step.sizes) / 50);
  try {
    require_fit(tight, backend, step, counted);
  } catch (const PlanError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("the cheapest change that fits is "), std::string::npos) << message;
  EXPECT_NE(message.find("--set train.micro_batch="), std::string::npos) << message;
  EXPECT_LE(num_compiled, 40);
}

// A smaller micro-batch would need memory for gradients, which a step of one pass does not.
TEST(RequireFit, KeepsAStepOfOnePassWhereThatIsSmaller) {
  Backend backend = cpu::make_backend();
  backend.overwrites_gradients = true;
  const auto plan = [&](int64_t micro_batch, std::string_view limit) {
    const Config config =
        parse_config(
            fmt::format(
                "precision: bf16\nthreads: 1\n"
                "model: {{family: gpt2, layers: 4, width: 128, heads: 2, context: 112, vocab: 256}}\n"
                "train: {{batch: 2, micro_batch: {}}}\nmemory: {{limit: {}}}\ncheckpoint: {{every: 0}}\n",
                micro_batch, limit),
            "config")
            .config;
    return std::pair{config, compile_options(config, backend)};
  };
  const auto bytes = [&](int64_t micro_batch) {
    auto [config, options] = plan(micro_batch, "0");
    options.recompute = {RecomputeKind::Full, 0};
    return counted_bytes(compile_config(config, options).sizes, options);
  };
  ASSERT_LT(bytes(2), bytes(1));
  const auto [config, options] = plan(2, fmt::format("{}", bytes(2)));
  try {
    require_fit(config, backend, compile_config(config, options));
    FAIL() << "the plan fits: nothing is tested";
  } catch (const PlanError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("--set memory.recompute="), std::string::npos) << message;
    EXPECT_EQ(message.find("train.micro_batch"), std::string::npos) << message;
  }
}

TEST(Fp8, IsRefusedWithWeightsInHostMemoryAndWithoutHardware) {
  const auto compile = [](bool has_fp8, std::string_view more) {
    Backend backend = cpu::make_backend();
    backend.has_fp8 = has_fp8;
    const Config config =
        parse_config(
            fmt::format("precision: fp8\nthreads: 1\n"
                        "model: {{family: gpt2, layers: 2, width: 32, heads: 2, context: 16, vocab: 256}}\n"
                        "train: {{batch: 4, micro_batch: 2}}\n{}",
                        more),
            "config")
            .config;
    const CompileOptions options = compile_options(config, backend, MeshPosition::of(mesh_shape(config), 0));
    return compile_config(config, options);
  };
  EXPECT_THROW(compile(false, ""), ConfigError);
  EXPECT_THROW(compile(true, "memory: {offload: [params]}\n"), ConfigError);
  for (const char* more : {"", "parallel: {strategy: ddp, data: 2}\n", "memory: {offload: [optimizer]}\n",
                           "parallel: {strategy: fsdp, data: 2}\n"})
    EXPECT_NE(compile(true, more).find(kFp8Activations), nullptr) << more;
}

}  // namespace
}  // namespace tandem
