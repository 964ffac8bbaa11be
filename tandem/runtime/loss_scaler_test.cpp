// The loss scale that a step keeps for itself: a few steps on the reference kernels, with the host only
// looking on.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "tandem/base/digest.h"
#include "tandem/base/rng.h"
#include "tandem/compile/passes/loss/loss_scaler.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/models/tiny_gpt2_test.h"
#include "tandem/runtime/train_step_test.h"

namespace tandem {
namespace {

using Scaler = std::array<double, kScalerSlots>;

std::vector<int32_t> some_ids(uint64_t seed) {
  std::vector<int32_t> ids(16);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(mix_bits(100 * seed + i) % 32);
  return ids;
}

class LossScalerTest : public testing::Test {
 protected:
  // At the start, with this in its scaler.
  std::unique_ptr<Session> make(const PrecisionPolicy& precision, const Scaler& scaler) {
    CompileOptions options;
    options.precision = precision;
    options.choose = choose_from(registry_, pool_.num_threads());
    auto session =
        std::make_unique<Session>(compile_step(build_model(tiny_gpt2(1), 2), options), registry_, pool_);
    session->initialize(3);
    if (precision.scales_loss()) write(*session, scaler);
    return session;
  }
  static void write(Session& session, const Scaler& scaler) {
    session.write_buffer(session.step().find(kLossScaler)->slice, 0, std::as_bytes(std::span(scaler)));
  }
  static Scaler read(const Session& session) {
    return first_of<Scaler>(session.read(session.step().update, kLossScaler));
  }
  // Returns the norm.
  static double step(Session& session, int number) {
    const auto seed = static_cast<uint64_t>(number);
    const TrainStep how{.lr = 1e-3f, .beta2 = 0.95f, .decay = 0.1f, .clip = 1};
    return train_step(session, number, some_ids(seed), some_ids(seed + 50), how).norm;
  }
  static std::vector<std::string> saved(const Session& session) {
    std::vector<std::string> state;
    for (const Persistent& item : session.step().persistents) {
      if (item.saved) state.push_back(item.name + " " + digest_hex(session.buffer(item)));
    }
    return state;
  }
  KernelRegistry registry_ = cpu::reference_kernels();
  ThreadPool pool_{1};
};

constexpr PrecisionPolicy kHalf{.storage = DType::F16, .loss_scale_window = 2};

TEST_F(LossScalerTest, FallsUntilGradientsAreFinite) {
  Scaler last = {0x1p30, 1};
  const auto session = make(kHalf, last);
  const std::vector<std::string> start = saved(*session);
  int number = 0;
  while (!std::isfinite(step(*session, ++number))) {
    EXPECT_EQ(read(*session), (Scaler{last[kScalerScale] / 2, 0}));
    EXPECT_EQ(saved(*session), start) << "a step that is skipped changes nothing";
    last = read(*session);
    ASSERT_LT(number, 30);
  }
  EXPECT_GT(number, 2) << "nothing overflowed: nothing is tested";
  EXPECT_EQ(read(*session), (Scaler{last[kScalerScale], 1}));
  EXPECT_NE(saved(*session), start);
}

TEST_F(LossScalerTest, GrowsAfterAWindowOfGoodSteps) {
  const auto session = make(kHalf, {1024, 0});
  int number = 0;
  for (const Scaler& expected : {Scaler{1024, 1}, Scaler{2048, 0}, Scaler{2048, 1}, Scaler{4096, 0}}) {
    EXPECT_TRUE(std::isfinite(step(*session, ++number)));
    EXPECT_EQ(read(*session), expected);
  }
}

TEST_F(LossScalerTest, GoesOnFromWhatWasReadOfIt) {
  const Scaler start = {0x1p24, 0};
  const auto whole = make(kHalf, start), first = make(kHalf, start);
  for (int number = 1; number <= 8; ++number) step(*whole, number);
  for (int number = 1; number <= 3; ++number) step(*first, number);
  const auto second = make(kHalf, read(*first));
  for (const Persistent& item : first->step().persistents) {
    if (item.name != kLossScaler) std::ranges::copy(first->buffer(item), second->buffer(item).begin());
  }
  for (int number = 4; number <= 8; ++number) step(*second, number);
  EXPECT_EQ(read(*second), read(*whole));
  EXPECT_EQ(saved(*second), saved(*whole));
}

// In fp32 a power of two comes and goes without a trace.
TEST_F(LossScalerTest, ChangesNoBitWhereNothingIsRounded) {
  const auto plain = make({}, {}), scaled = make({.loss_scale_window = 2}, {4096, 0});
  for (int number = 1; number <= 5; ++number) EXPECT_EQ(step(*scaled, number), step(*plain, number));
  EXPECT_EQ(saved(*scaled), saved(*plain));
  EXPECT_EQ(read(*scaled), (Scaler{16384, 1}));
}

TEST_F(LossScalerTest, EvaluationLeavesItAlone) {
  const auto session = make(kHalf, {1024, 0});
  step(*session, 1);
  const std::vector<int32_t> ids = some_ids(9);
  for (const char* input : {"tokens", "targets"})
    session->write(session->step().eval, input, std::as_bytes(std::span(ids)));
  session->run_eval();
  EXPECT_EQ(read(*session), (Scaler{1024, 1}));
}

}  // namespace
}  // namespace tandem
