// What saves memory changes no bits: gradients that lie where activations lay, outputs that gradient ops give
// again, and gelu made again. A few steps on the reference kernels, with and without.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/digest.h"
#include "tandem/base/rng.h"
#include "tandem/compile/pass_list.h"
#include "tandem/ir/text.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/models/model.h"
#include "tandem/runtime/train_step_test.h"

namespace tandem {
namespace {

constexpr int kSteps = 3;
constexpr int64_t kBatch = 3;

struct Saving {
  bool overwrite_gradients = false;
  bool outputs_again = false;
  bool gelu_again = false;
  bool gelu_of_product = false;  // not a saving: how a GPU fuses it
  bool attention_sums = true;    // of qkv's bias, in attention's gradient
  bool activations_on_host = false;
  std::vector<std::string> without{};
};

struct Outcome {
  std::vector<double> figures;  // loss, norm and loss of evaluation of each step
  std::vector<std::string> state;
  bool gives_again = false;
  ArenaSizes sizes{};
};

ModelConfig small(Family family) {
  ModelConfig config;
  config.family = family;
  config.layers = 2;
  config.width = 16;
  config.heads = 2;
  config.kv_heads = family == Family::Llama ? 1 : 2;
  config.context = 12;
  config.vocab = 40;
  config.tied = true;
  return config;
}

std::vector<int32_t> some_ids(uint64_t seed, const ModelConfig& model) {
  std::vector<int32_t> ids(static_cast<size_t>(kBatch * model.context));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(mix_bits(seed * 1000 + i) % static_cast<uint64_t>(model.vocab));
  return ids;
}

// `model` says what ids the graph takes.
Outcome train(const Graph& forward, const ModelConfig& model, DType storage, RecomputeKind kind,
              const Saving& saving) {
  const KernelRegistry registry = cpu::reference_kernels();
  ThreadPool pool(2);
  CompileOptions options;
  options.precision = {.storage = storage};
  options.recompute = {kind, 2};
  options.fuse.bias_sums = true;
  if (saving.attention_sums)
    options.fuse.attention_sums = [](const TensorType&, const Attrs&) { return true; };
  options.fuse.outputs_again = saving.outputs_again;
  options.fuse.gelu_again = saving.gelu_again;
  options.fuse.gelu_of_product = saving.gelu_of_product;
  options.overwrite_gradients = saving.overwrite_gradients;
  options.without = saving.without;
  if (saving.activations_on_host) options.parallel.offloaded_activations = int64_t{1} << 30;
  options.choose = choose_from(registry, pool.num_threads());
  Session session(compile_step(forward, options), registry, pool);
  session.initialize(5);
  const Executable &pass = session.step().pass, &eval = session.step().eval;
  const auto tokens = some_ids(7, model), targets = some_ids(8, model);  // of evaluation
  Outcome run;
  for (int step = 0; step < kSteps; ++step) {
    const auto seed = 2 * static_cast<uint64_t>(step);
    const StepFigures figures =
        train_step(session, step + 1, some_ids(seed, model), some_ids(seed + 1, model),
                   {.lr = 1e-2f, .beta2 = 0.95f, .decay = 0.1f, .clip = 1});
    run.figures.insert(run.figures.end(), {figures.loss, figures.norm});
    session.write(eval, "tokens", std::as_bytes(std::span(tokens)));
    session.write(eval, "targets", std::as_bytes(std::span(targets)));
    session.run_eval();  // it may use all activations' memory, gradients' too
    run.figures.push_back(first_of<double>(session.read(eval, "stats")));
  }
  for (const Persistent& item : session.step().persistents) {
    if (item.saved) run.state.push_back(item.name + " " + digest_hex(session.buffer(item)));
  }
  run.gives_again = std::ranges::any_of(
      pass.commands, [](const Command& command) { return command.attrs.integer_or("again", 0) != 0; });
  run.sizes = session.step().sizes;
  for (int i = 0; i < kNumArenas; ++i)
    EXPECT_EQ(session.allocated_bytes(static_cast<Arena>(i)), run.sizes[static_cast<size_t>(i)]);
  return run;
}

Outcome train(Family family, DType storage, RecomputeKind kind, const Saving& saving) {
  const ModelConfig model = small(family);
  return train(build_model(model, kBatch), model, storage, kind, saving);
}

class MemoryNumericTest : public testing::TestWithParam<std::tuple<Family, DType, RecomputeKind>> {
 protected:
  Outcome train(const Saving& saving) const {
    const auto& [family, storage, kind] = GetParam();
    return tandem::train(family, storage, kind, saving);
  }
  static int64_t bytes(const Outcome& run, Arena arena) { return run.sizes[static_cast<size_t>(arena)]; }
};

TEST_P(MemoryNumericTest, GradientsAmongTheActivationsGiveTheSameBits) {
  const Outcome plain = train({}), saving = train({.overwrite_gradients = true});
  EXPECT_EQ(saving.figures, plain.figures);
  EXPECT_EQ(saving.state, plain.state);
  EXPECT_GT(bytes(plain, Arena::Gradients), 0);
  EXPECT_EQ(bytes(saving, Arena::Gradients), 0);
  EXPECT_LT(total_bytes(saving.sizes), total_bytes(plain.sizes));
}

INSTANTIATE_TEST_SUITE_P(Models, MemoryNumericTest,
                         testing::Combine(testing::Values(Family::Gpt2, Family::Llama),
                                          testing::Values(DType::F32, DType::BF16),
                                          testing::Values(RecomputeKind::None, RecomputeKind::Selective,
                                                          RecomputeKind::Every, RecomputeKind::Full)));

// Two norms with one gain and a bias each: the second gradient op has a sum to add to and a bias to begin.
TEST(GradientsAmongTheActivations, GiveTheSameBitsWhereAnOpCannotOverwrite) {
  const Graph forward = parse_graph(R"(%0 = input "tokens" : i32[3,12]
%1 = input "targets" : i32[3,12]
%2 = param "embed.weight" {init="normal:0.02"} : f32[40,16]
%3 = embedding(%0, %2) : f32[3,12,16]
%4 = param "gain" {init="ones"} : f32[16]
%5 = param "first.bias" {init="zeros"} : f32[16]
%6, %7, %8 = layer_norm(%3, %4, %5) {eps=1e-05} : f32[3,12,16], f32[36], f32[36]
%9 = param "second.bias" {init="zeros"} : f32[16]
%10, %11, %12 = layer_norm(%6, %4, %9) {eps=1e-05} : f32[3,12,16], f32[36], f32[36]
%13 = param "head.weight" {init="normal:0.02"} : f32[40,16]
%14 = matmul(%10, %13) {trans_a=0, trans_b=1} : f32[3,12,40]
%15 = cross_entropy(%14, %1) : f64[2]
output "logits" %14
output "stats" %15
)");
  const ModelConfig model = small(Family::Gpt2);
  const auto outcome = [&](bool overwrite) {
    return train(forward, model, DType::F32, RecomputeKind::None, {.overwrite_gradients = overwrite});
  };
  const Outcome plain = outcome(false), saving = outcome(true);
  EXPECT_EQ(saving.figures, plain.figures);
  EXPECT_EQ(saving.state, plain.state);
  EXPECT_EQ(saving.sizes[static_cast<size_t>(Arena::Gradients)], 0);
}

// Not a saving: another op makes a bias's gradient, and sums in another order.
TEST(SumsInAttentionsGradient, AreTheBiasGradient) {
  for (const bool overwrite : {false, true}) {
    const Saving apart{.overwrite_gradients = overwrite, .attention_sums = false};
    const Outcome want = train(Family::Gpt2, DType::F32, RecomputeKind::None, apart);
    const Outcome found =
        train(Family::Gpt2, DType::F32, RecomputeKind::None, {.overwrite_gradients = overwrite});
    ASSERT_EQ(found.figures.size(), want.figures.size());
    for (size_t i = 0; i < want.figures.size(); ++i)
      EXPECT_NEAR(found.figures[i], want.figures[i], 1e-6 * std::abs(want.figures[i])) << i;
  }
}

TEST(GeluMadeAgain, HasTheSameBits) {
  for (const DType storage : {DType::F32, DType::BF16}) {
    for (const RecomputeKind kind :
         {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Every, RecomputeKind::Full}) {
      const Outcome plain = train(Family::Gpt2, storage, kind, {.overwrite_gradients = true});
      for (const bool of_product : {false, true}) {
        const Outcome saving =
            train(Family::Gpt2, storage, kind,
                  {.overwrite_gradients = true, .gelu_again = true, .gelu_of_product = of_product});
        EXPECT_EQ(saving.figures, plain.figures);
        EXPECT_EQ(saving.state, plain.state);
        if (kind == RecomputeKind::None) {
          EXPECT_LT(total_bytes(saving.sizes), total_bytes(plain.sizes));
        }
      }
    }
  }
}

// Selective recomputation, by gradient ops that give outputs again or by ops that run twice.
TEST(OutputsGivenAgain, HaveTheSameBits) {
  for (const Family family : {Family::Gpt2, Family::Llama}) {
    for (const DType storage : {DType::F32, DType::BF16}) {
      for (const bool overwrite : {false, true}) {
        const Saving without{.overwrite_gradients = overwrite};
        const Saving with{.overwrite_gradients = overwrite, .outputs_again = true};
        const Outcome plain = train(family, storage, RecomputeKind::Selective, without);
        const Outcome saving = train(family, storage, RecomputeKind::Selective, with);
        EXPECT_FALSE(plain.gives_again);
        EXPECT_TRUE(saving.gives_again);
        EXPECT_EQ(saving.figures, plain.figures);
        EXPECT_EQ(saving.state, plain.state);
      }
    }
  }
}

// tandem plan --without: what a step computes stays.
TEST(AStepWithoutAnOptionalPass, HasTheSameResult) {
  for (const Family family : {Family::Gpt2, Family::Llama}) {
    for (const std::string_view pass : optional_passes()) {
      // Where outputs are given again, selective recomputation has little left to do.
      const RecomputeKind kind = pass == "recompute" ? RecomputeKind::Full : RecomputeKind::Selective;
      Saving saving{
          .overwrite_gradients = true, .outputs_again = true, .activations_on_host = pass == "offload"};
      const Outcome whole = train(family, DType::F32, kind, saving);
      saving.without = {std::string(pass)};
      const Outcome found = train(family, DType::F32, kind, saving);
      EXPECT_NE(found.sizes, whole.sizes) << pass << " was not left out";
      ASSERT_EQ(found.figures.size(), whole.figures.size());
      const double rounding = pass == "fuse" ? 1e-5 : 0;  // it sums biases' gradients in another order
      for (size_t i = 0; i < whole.figures.size(); ++i)
        EXPECT_NEAR(found.figures[i], whole.figures[i], rounding * std::abs(whole.figures[i])) << pass;
      if (rounding > 0) continue;
      EXPECT_EQ(found.state, whole.state) << pass;
    }
  }
}

}  // namespace
}  // namespace tandem
