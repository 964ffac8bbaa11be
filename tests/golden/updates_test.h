// Updates of a tiny gpt2, as they are compiled, from weights and with gradients that a Python program
// (make_muon.py, make_optimizers.py) works out as well.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "tandem/base/thread_pool.h"
#include "tandem/compile/compile_step.h"
#include "tandem/compile/update_graph.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/models/model.h"
#include "tandem/runtime/session.h"

namespace tandem {

inline nlohmann::json read_golden(const std::string& name) {
  std::ifstream file(TANDEM_GOLDEN_DIR "/" + name);
  return nlohmann::json::parse(file);
}

// As make_muon.py has it.
inline float fraction(int64_t seed, int64_t i) {
  const int64_t bits = (seed * 7919 + i + 1) * 1103515245 % 2147483648 / 65536 % 256;
  return static_cast<float>(bits - 128) / 64;
}

inline Graph updated_model() {
  ModelConfig config;
  config.layers = 1;
  config.width = 8;
  config.heads = 2;
  config.context = 8;
  config.vocab = 32;
  return build_model(config, 1);
}

inline std::span<float> floats(const Session& session, std::string_view kind, const std::string& name) {
  const Persistent* item = session.step().find(std::string(kind) + name);
  EXPECT_NE(item, nullptr) << kind << name;
  const std::span<std::byte> bytes = session.buffer(*item);
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// golden["steps"] updates with the fast kernels and with the reference ones: buffers "weights:NAME", or
// others, end within 1e-4 of golden[end]. `hyper` gives what a step (1, 2, ...) is told.
inline void expect_updates(const nlohmann::json& golden, const std::string& end, CompileOptions options,
                           const std::function<std::vector<float>(int64_t)>& hyper,
                           std::string_view trained = "weights:") {
  const KernelRegistry fast = cpu::make_backend().kernels, plain = cpu::reference_kernels();
  for (const KernelRegistry* kernels : {&fast, &plain}) {
    options.choose = choose_from(*kernels, 1);
    ThreadPool pool(1);
    Session session(compile_step(updated_model(), options), *kernels, pool);
    session.initialize(1);
    const auto names = golden["names"].get<std::vector<std::string>>();
    const auto fill = [&](std::string_view kind, int64_t seed) {
      for (size_t p = 0; p < names.size(); ++p) {
        const std::span<float> values = floats(session, kind, names[p]);
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = fraction(seed + static_cast<int64_t>(p), static_cast<int64_t>(i));
      }
    };
    fill(trained, 1000);
    for (int64_t step = 1; step <= golden["steps"]; ++step) {
      fill("grads:", 100 * step);
      const std::vector<float> values = hyper(step);
      const double stats[kNumStats] = {};
      session.write(session.step().update, "hyper", std::as_bytes(std::span(values)));
      session.write(session.step().update, "stats", std::as_bytes(std::span(stats)));
      session.run_update();
    }
    for (const std::string& name : names) {
      const std::span<float> got = floats(session, trained, name);
      const nlohmann::json& want = golden[end][name];
      ASSERT_EQ(got.size(), want.size()) << name;
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i].get<double>(), 1e-4) << end << " " << name << " " << i;
    }
  }
}

}  // namespace tandem
