// Muon's update, as it is compiled, against 20 steps of a plain Python program (make_muon.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tandem/base/thread_pool.h"
#include "tandem/compile/compile_step.h"
#include "tandem/compile/update_graph.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/models/model.h"
#include "tandem/runtime/session.h"

namespace tandem {
namespace {

// As make_muon.py has it.
float fraction(int64_t seed, int64_t i) {
  const int64_t bits = (seed * 7919 + i + 1) * 1103515245 % 2147483648 / 65536 % 256;
  return static_cast<float>(bits - 128) / 64;
}

Graph tiny_model() {
  ModelConfig config;
  config.layers = 1;
  config.width = 8;
  config.heads = 2;
  config.context = 8;
  config.vocab = 32;
  return build_model(config, 1);
}

std::span<float> floats(const Session& session, std::string_view kind, const std::string& name) {
  const Persistent* item = session.step().find(std::string(kind) + name);
  EXPECT_NE(item, nullptr) << kind << name;
  const std::span<std::byte> bytes = session.buffer(*item);
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

TEST(Muon, FollowsThePublishedRule) {
  std::ifstream file(TANDEM_GOLDEN_DIR "/muon.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  const KernelRegistry fast = cpu::make_backend().kernels, plain = cpu::reference_kernels();
  for (const KernelRegistry* kernels : {&fast, &plain}) {
    for (MuonScale scale : {MuonScale::MatchAdamW, MuonScale::Original}) {
      CompileOptions options;
      options.optimizer = OptimizerKind::Muon;
      options.muon_scale = scale;
      options.choose = choose_from(*kernels, 1);
      ThreadPool pool(1);
      Session session(compile_step(tiny_model(), options), *kernels, pool);
      session.initialize(1);
      const auto names = golden["names"].get<std::vector<std::string>>();
      for (size_t p = 0; p < names.size(); ++p) {
        const std::span<float> weights = floats(session, "weights:", names[p]);
        for (size_t i = 0; i < weights.size(); ++i)
          weights[i] = fraction(1000 + static_cast<int64_t>(p), static_cast<int64_t>(i));
      }
      for (int64_t step = 1; step <= golden["steps"]; ++step) {
        for (size_t p = 0; p < names.size(); ++p) {
          const std::span<float> gradients = floats(session, "grads:", names[p]);
          for (size_t i = 0; i < gradients.size(); ++i)
            gradients[i] = fraction(100 * step + static_cast<int64_t>(p), static_cast<int64_t>(i));
        }
        const float hyper[] = {golden["lr"], golden["decay"], static_cast<float>(step), 1, 0, 0.9f,
                               0.95f,        1e-8f,           golden["momentum"]};
        const double stats[kNumStats] = {};
        session.write(session.step().update, "hyper", std::as_bytes(std::span(hyper)));
        session.write(session.step().update, "stats", std::as_bytes(std::span(stats)));
        session.run_update();
      }
      const nlohmann::json& ends = golden[scale == MuonScale::Original ? "original" : "match_rms_adamw"];
      for (const std::string& name : names) {
        const std::span<float> got = floats(session, "weights:", name);
        const nlohmann::json& want = ends[name];
        ASSERT_EQ(got.size(), want.size()) << name;
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], want[i].get<double>(), 1e-4) << name << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tandem
