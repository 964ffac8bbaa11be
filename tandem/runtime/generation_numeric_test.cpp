// Generation with a cache against the whole forward, for every family: the logits after each token, however
// the tokens before it came into the cache.
#include "tandem/runtime/generation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/rng.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/models/family_models_test.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

ModelConfig tiny_gpt2_for_text() {
  ModelConfig config = tiny_decoder();
  config.family = Family::Gpt2;
  config.kv_heads = 4;
  config.qkv_bias = true;
  config.tied = true;
  return config;
}

std::vector<FamilyModel> all_models() {
  std::vector<FamilyModel> models = family_models();
  models.push_back({"gpt2", tiny_gpt2_for_text()});
  return models;
}

CompileOptions options_for(const KernelRegistry& registry, int threads, Precision precision) {
  CompileOptions options;
  options.precision = precision_policy(precision);
  options.choose = choose_from(registry, threads);
  return options;
}

// Weights of deviation 0.4, so that attention prefers some tokens to others and every factor shows.
void fill_weights(Session& session) {
  for (const Persistent& item : session.step().persistents) {
    if (item.slice.arena != Arena::Weights) continue;
    const Rng rng(3, hash_name(item.name));
    const std::span<std::byte> bytes = session.buffer(item);
    for (int64_t i = 0; i < item.slice.type.shape.elems(); ++i) {
      float normals[4];
      rng.normals(static_cast<uint64_t>(i), normals);
      const float value = 0.4f * normals[0];
      if (item.slice.type.dtype == DType::F32) {
        reinterpret_cast<float*>(bytes.data())[i] = value;
      } else {
        reinterpret_cast<BFloat16*>(bytes.data())[i] = to_bfloat16(value);
      }
    }
  }
}

std::vector<int32_t> some_tokens(const ModelConfig& model) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < model.context; ++i)
    tokens.push_back(static_cast<int32_t>((i * i * 7 + 3 * i + 1) % model.vocab));
  return tokens;
}

// Rows of logits of the forward that has all tokens.
std::vector<float> whole_logits(const ModelConfig& model, const KernelRegistry& registry) {
  ThreadPool pool(2);
  Session session(compile_forward(build_model(model, 1), options_for(registry, 2, Precision::Fp32),
                                  ForwardOutput::Logits),
                  registry, pool);
  fill_weights(session);
  const std::vector<int32_t> tokens = some_tokens(model);
  session.write(session.step().eval, "tokens", std::as_bytes(std::span(tokens)));
  session.run_eval();
  const std::span<const std::byte> bytes = session.read(session.step().eval, "logits");
  const auto* first = reinterpret_cast<const float*>(bytes.data());
  return {first, first + bytes.size() / sizeof(float)};
}

struct Cached {
  KernelRegistry registry;
  ThreadPool pool;
  Session session;
  Generation text;

  Cached(const ModelConfig& model, int64_t rows, int threads = 2, Precision precision = Precision::Fp32,
         KernelRegistry kernels = cpu::all_kernels())
      : registry(std::move(kernels)),
        pool(threads),
        session(compile_generation(build_model(model, 1), options_for(registry, threads, precision),
                                   {.prefill_rows = rows}),
                registry, pool),
        text(session) {
    fill_weights(session);
  }
};

void expect_row(std::span<const float> got, const std::vector<float>& whole, int64_t row, double tolerance) {
  const auto vocab = static_cast<int64_t>(got.size());
  for (int64_t i = 0; i < vocab; ++i) {
    const double want = whole[static_cast<size_t>(row * vocab + i)];
    ASSERT_NEAR(got[static_cast<size_t>(i)], want, tolerance * (1 + std::abs(want)))
        << "after token " << row << ", logit " << i;
  }
}

class GenerationOf : public testing::TestWithParam<FamilyModel> {
 protected:
  const ModelConfig& model() const { return GetParam().model; }

  // A prompt of every length, then token by token to the end of the context.
  void expect_as_whole(Cached& cached, const std::vector<float>& whole, double tolerance) {
    const std::vector<int32_t> tokens = some_tokens(model());
    for (size_t prompt = 1; prompt <= tokens.size(); ++prompt) {
      cached.text.restart();
      std::span<const float> logits = cached.text.add(std::span(tokens).first(prompt));
      for (size_t i = prompt;; ++i) {
        expect_row(logits, whole, static_cast<int64_t>(i) - 1, tolerance);
        if (testing::Test::HasFatalFailure() || i == tokens.size()) break;
        logits = cached.text.add({&tokens[i], 1});
      }
    }
  }
};

TEST_P(GenerationOf, GivesTheLogitsOfTheWholeForward) {
  const std::vector<float> whole = whole_logits(model(), cpu::all_kernels());
  for (const int64_t rows : {1, 2, 5, 12}) {  // that wrap round the windows' caches in every way
    SCOPED_TRACE(rows);
    Cached cached(model(), rows);
    expect_as_whole(cached, whole, 1e-5);
  }
}

TEST_P(GenerationOf, GivesTheLogitsOfTheWholeForwardByTheReference) {
  const std::vector<float> whole = whole_logits(model(), cpu::reference_kernels());
  Cached cached(model(), 5, 1, Precision::Fp32, cpu::reference_kernels());
  expect_as_whole(cached, whole, 1e-5);
}

TEST_P(GenerationOf, StaysNearInSixteenBits) {
  const std::vector<float> whole = whole_logits(model(), cpu::all_kernels());
  double norm = 0, off = 0;
  Cached cached(model(), 5, 2, Precision::Bf16);
  const std::vector<int32_t> tokens = some_tokens(model());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::span<const float> logits = cached.text.add({&tokens[i], 1});
    for (size_t j = 0; j < logits.size(); ++j) {
      const double want = whole[i * logits.size() + j];
      norm += want * want;
      off += (logits[j] - want) * (logits[j] - want);
    }
  }
  EXPECT_LT(std::sqrt(off / norm), 0.05);
}

TEST_P(GenerationOf, HasTheSameBitsForAnyNumberOfThreads) {
  const std::vector<int32_t> tokens = some_tokens(model());
  for (const Precision precision : {Precision::Fp32, Precision::Bf16}) {
    std::vector<std::vector<float>> all;
    for (const int threads : {1, 2, 3}) {
      Cached cached(model(), 5, threads, precision);
      std::vector<float> made;
      std::span<const float> logits = cached.text.add(std::span(tokens).first(7));
      made.insert(made.end(), logits.begin(), logits.end());
      for (size_t i = 7; i < tokens.size(); ++i) {
        logits = cached.text.add({&tokens[i], 1});
        made.insert(made.end(), logits.begin(), logits.end());
      }
      all.push_back(std::move(made));
    }
    EXPECT_EQ(all[0], all[1]);
    EXPECT_EQ(all[0], all[2]);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GenerationOf, testing::ValuesIn(all_models()),
                         [](const auto& info) { return info.param.name; });

// Heads of 64 features over more positions than one task takes, past a window that is a ring.
TEST(Generation, GoesOnOverManyBlocksOfPositions) {
  ModelConfig model = tiny_decoder();
  model.context = 700;
  model.layers = 2;
  model.head = 64;
  model.window = 300;
  model.full_layers = {1};
  const std::vector<float> whole = whole_logits(model, cpu::all_kernels());
  const std::vector<int32_t> tokens = some_tokens(model);
  Cached cached(model, 64);
  expect_row(cached.text.add(std::span(tokens).first(613)), whole, 612, 2e-5);
  for (size_t i = 613; i < tokens.size(); ++i)
    expect_row(cached.text.add({&tokens[i], 1}), whole, static_cast<int64_t>(i), 2e-5);
}

TEST(Generation, AllocatesExactlyThePlan) {
  ModelConfig model = tiny_decoder();
  model.window = 3;
  model.full_layers = {0};
  Cached cached(model, 4, 2, Precision::Bf16);
  const CompiledStep& step = cached.session.step();
  for (int i = 0; i < kNumArenas; ++i)
    EXPECT_EQ(cached.session.allocated_bytes(static_cast<Arena>(i)), step.sizes[static_cast<size_t>(i)]);
  // Keys and values of 12 positions and, of the layer with the window, of the 2 + 4 that a run can need:
  // 2 heads of 4 numbers of 2 bytes each. Buffers are padded to 64 bytes.
  EXPECT_EQ(step.sizes[static_cast<size_t>(Arena::Cache)], 2 * (12 * 16) + 2 * 128);
  for (const Persistent& item : step.persistents)
    EXPECT_EQ(item.saved, item.slice.arena != Arena::Cache) << item.name;
}

TEST(Generation, ReadsEachWeightOnce) {
  ModelConfig model = tiny_decoder();
  model.tied = true;
  const CompiledStep step = Cached(model, 4, 1, Precision::Bf16).session.step();
  EXPECT_EQ(weights_read(step), 2 * (step.num_params + model.width));  // and the row of the token
}

std::string refusal(std::function<void(Builder& b)> write) {
  ModelConfig config = tiny_decoder();
  const BuildModel model = own_model([&](Builder& b, const ModelConfig&) { write(b); });
  return message_of<ConfigError>([&] {
    const KernelRegistry registry = cpu::reference_kernels();
    compile_generation(model(config, 1), options_for(registry, 1, Precision::Fp32), {.prefill_rows = 4});
  });
}

TEST(Generation, RefusesModelsWhoseTokensSeeLaterOnes) {
  EXPECT_NE(refusal([](Builder& b) {
              const Value x = b.linear(b.embedding(40, 16, false), 48, "qkv");
              b.cross_entropy(b.linear(b.attention(x, 4, 4, /*causal=*/false), 40, "head"));
            }).find("attention: sees later tokens"),
            std::string::npos);
  EXPECT_NE(refusal([](Builder& b) {
              const Value x = b.linear(b.embedding(40, 16, false), 48, "qkv");
              b.cross_entropy(b.linear(b.attention(x, 4, 4, {.segments = b.segments()}), 40, "head"));
            }).find("segments"),
            std::string::npos);
  EXPECT_NE(refusal([](Builder& b) {
              const Value x = b.embedding(40, 16, false);
              b.cross_entropy(b.linear(b.group_norm(x, 2, "norm"), 40, "head"));
            }).find("group_norm: may look at other tokens"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
