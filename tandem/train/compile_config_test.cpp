#include "tandem/train/compile_config.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/config/load.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/models/model.h"

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

TEST(GradientsIn16Bits, AreRefusedWhereTheyAreAddedTo) {
  const Backend backend = cpu::make_backend();
  const Config config = with_narrow_gradients();
  EXPECT_THROW(compile_config(config, compile_options(config, backend)), ConfigError);
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

}  // namespace
}  // namespace tandem
