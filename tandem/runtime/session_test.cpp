#include "tandem/runtime/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/split_float.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/models/tiny_gpt2_test.h"

namespace tandem {
namespace {

class SessionTest : public testing::Test {
 protected:
  Session make(DType storage) {
    CompileOptions options;
    options.precision = {.storage = storage};
    options.choose = choose_from(registry_, pool_.num_threads());
    return Session(compile_step(build_model(tiny_gpt2(1), 2), options), registry_, pool_);
  }
  static std::string digest(const Session& session, std::string_view name) {
    return digest_hex(session.buffer(*session.step().find(name)));
  }
  KernelRegistry registry_ = cpu::reference_kernels();
  ThreadPool pool_{2};
};

TEST_F(SessionTest, AllocatesExactlyThePlan) {
  const Session session = make(DType::BF16);
  for (int i = 0; i < kNumArenas; ++i) {
    EXPECT_EQ(session.allocated_bytes(static_cast<Arena>(i)), session.step().sizes[static_cast<size_t>(i)]);
  }
  EXPECT_GT(session.allocated_bytes(Arena::Master), 0);
}

// A backend says what its kernels do not know yet; a model that needs it is refused before it runs.
TEST_F(SessionTest, WhatABackendLacksIsRefusedByName) {
  registry_.add_lack({Op::Attention, "window"});
  registry_.add_lack({Op::Gelu});
  const auto choose = [&](Op op, const Attrs& attrs) {
    const TensorType qkv{DType::F32, {1, 2, 12}};
    return registry_.choose({op, {qkv}, {qkv, qkv}, &attrs}).name;
  };
  EXPECT_EQ(choose(Op::Attention, {{"causal", int64_t{1}}}), "ref.attention");
  EXPECT_EQ(message_of<ConfigError>([&] {
              choose(Op::Attention, {{"window", int64_t{4}}});
            }),
            "device: this backend has no attention with window yet, which the model needs; use device = cpu");
  EXPECT_EQ(message_of<ConfigError>([&] { make(DType::F32); }),
            "device: this backend has no gelu yet, which the model needs; use device = cpu");
}

TEST_F(SessionTest, StartingWeightsDependOnSeedAndNameAlone) {
  Session a = make(DType::F32), b = make(DType::F32);
  a.initialize(1);
  b.initialize(1);
  EXPECT_EQ(digest(a, "weights:blocks.0.up.weight"), digest(b, "weights:blocks.0.up.weight"));
  b.initialize(2);
  EXPECT_NE(digest(a, "weights:blocks.0.up.weight"), digest(b, "weights:blocks.0.up.weight"));
  EXPECT_NE(digest(a, "weights:embed.weight"), digest(a, "weights:pos.weight"));
}

TEST_F(SessionTest, HalfPrecisionWeightsAreTheirMastersRounded) {
  Session half = make(DType::F16), full = make(DType::F32);
  half.initialize(3);
  full.initialize(3);
  EXPECT_EQ(digest(half, "master:embed.weight"), digest(full, "weights:embed.weight"));
  const auto weights = half.buffer(*half.step().find("weights:embed.weight"));
  const auto master = half.buffer(*half.step().find("master:embed.weight"));
  const auto expect_rounded = [&] {
    for (size_t i = 0; i < weights.size() / 2; ++i) {
      float wide = 0;
      Half narrow{};
      std::memcpy(&wide, master.data() + 4 * i, 4);
      std::memcpy(&narrow, weights.data() + 2 * i, 2);
      ASSERT_EQ(narrow.bits, to_half(wide).bits);
    }
  };
  expect_rounded();
  std::fill(weights.begin(), weights.end(), std::byte{1});
  half.refresh_weights();
  expect_rounded();
}

TEST_F(SessionTest, Bf16WeightsAndWhatTheyLackAreTheirMasters) {
  Session half = make(DType::BF16), full = make(DType::F32);
  half.initialize(3);
  full.initialize(3);
  const Persistent& master = *half.step().find("master:embed.weight");
  const auto expected = full.buffer(*full.step().find("weights:embed.weight"));
  EXPECT_EQ(2 * master.slice.type.bytes(), static_cast<int64_t>(expected.size()));
  std::vector<std::byte> joined(expected.size());
  join_floats(half.buffer(*master.weights), half.buffer(master), joined);
  EXPECT_TRUE(std::ranges::equal(joined, expected));
}

TEST_F(SessionTest, AnInputOfTheWrongSizeIsABug) {
  Session session = make(DType::F32);
  const float one = 1;
  EXPECT_THROW(session.write(session.step().pass, "tokens", std::as_bytes(std::span(&one, 1))), BugError);
  EXPECT_THROW(session.read(session.step().pass, "nothing"), BugError);
}

TEST(KernelRegistry, TriesKernelsInTheOrderTheyWereAdded) {
  KernelRegistry registry;
  const auto never = [](const CallSignature&) { return false; };
  const auto always = [](const CallSignature&) { return true; };
  registry.add({"first", Op::Add, never, nullptr, nullptr});
  registry.add({"second", Op::Add, always, nullptr, nullptr});
  registry.add({"third", Op::Add, always, nullptr, nullptr});
  EXPECT_EQ(registry.choose({Op::Add, {}, {}, nullptr}).name, "second");
  EXPECT_THROW(registry.choose({Op::Gelu, {}, {}, nullptr}), DeviceError);
  EXPECT_THROW(registry.by_name("fourth"), DeviceError);
}

TEST(KernelRegistry, TellsWhichTypesNoKernelTakes) {
  const TensorType f32{DType::F32, Shape({2, 3})}, bf16{DType::BF16, Shape({2, 3})};
  EXPECT_EQ(message_of<DeviceError>([&] {
              KernelRegistry().choose({Op::Add, {f32, bf16}, {f32}});
            }),
            "add: no kernel supports this call: (f32[2,3], bf16[2,3]) -> (f32[2,3])");
}

}  // namespace
}  // namespace tandem
