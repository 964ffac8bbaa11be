// One training step of a session in a test: tokens and targets in, loss and norm out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tandem/compile/update_graph.h"
#include "tandem/ir/op.h"
#include "tandem/runtime/session.h"

namespace tandem {

template <typename T>
T first_of(std::span<const std::byte> bytes) {
  return *reinterpret_cast<const T*>(bytes.data());
}

struct TrainStep {
  float lr, beta2, decay, clip;
};

struct StepFigures {
  double loss;  // mean of the targets
  double norm;
};

// `number` counts from 1.
inline StepFigures train_step(Session& session, int number, const std::vector<int32_t>& tokens,
                              const std::vector<int32_t>& targets, const TrainStep& how) {
  const Executable &pass = session.step().pass, &update = session.step().update;
  const float scale = 1.0f / static_cast<float>(tokens.size());
  session.write(pass, "tokens", std::as_bytes(std::span(tokens)));
  session.write(pass, "targets", std::as_bytes(std::span(targets)));
  session.write(pass, "scale", std::as_bytes(std::span(&scale, 1)));
  session.run_pass();
  const double loss = first_of<double>(session.read(pass, "stats")) / static_cast<double>(tokens.size());
  const float hyper[] = {how.lr,    how.decay, static_cast<float>(number), 1, how.clip, 0, 0, 0.9f,
                         how.beta2, 1e-8f};
  const double stats[kNumStats] = {};
  session.write(update, "hyper", std::as_bytes(std::span(hyper)));
  session.write(update, "stats", std::as_bytes(std::span(stats)));
  session.run_update();
  return {loss, first_of<double>(session.read(update, "norm"))};
}

}  // namespace tandem
