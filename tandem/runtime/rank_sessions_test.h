// A few training steps on several ranks, which are threads of the test, and the weights they end with.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tandem/base/split_float.h"
#include "tandem/comm/connect.h"
#include "tandem/compile/update_graph.h"
#include "tandem/models/tiny_gpt2_test.h"
#include "tandem/optimizers/packed_state.h"
#include "tandem/runtime/session.h"

namespace tandem {

inline void write_input(Session& session, const Executable& executable, const Binding& input, int data) {
  const Shape& shape = input.slice.type.shape;
  std::vector<int32_t> ids(static_cast<size_t>(shape.elems()));
  const size_t first = 5 * static_cast<size_t>(data);
  for (size_t i = 0; i < ids.size(); ++i) {
    size_t id = (i * 7 + first) % 32;
    if (input.name.starts_with("segments")) id = (i + first) / 4;  // documents of four tokens
    if (input.name.starts_with("positions")) id = (i + first) % 4;
    ids[i] = static_cast<int32_t>(id);
  }
  session.write(executable, input.name, std::as_bytes(std::span(ids)));
}

// The logical parameters after two steps, put together from what each rank owns.
using Weights = std::map<std::string, std::vector<float>>;

// Of a buffer in fp32, or of masters whose other halves are the weights.
inline std::vector<float> floats_of(const Session& session, const Persistent& item) {
  std::vector<float> values(static_cast<size_t>(item.slice.type.shape.elems()));
  const std::span<std::byte> dst = std::as_writable_bytes(std::span(values));
  if (item.packed && item.packed->rounded) {
    const auto* stored = reinterpret_cast<const uint16_t*>(session.buffer(item).data());
    const bool bf16 = item.slice.type.dtype == DType::BF16;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = bf16 ? to_float(BFloat16{stored[i]}) : to_float(Half{stored[i]});
  } else if (item.packed) {
    const bool scaled = item.slice.type.dtype == DType::U8;
    const auto scales_in = [&](const Slice& scales) {
      return scaled ? reinterpret_cast<const float*>(session.buffer(scales).data()) : nullptr;
    };
    std::vector<float> roots(scaled && item.packed->kept == Kept::Share ? values.size() : 0);
    if (!roots.empty())
      unpack_roots(session.buffer(item.packed->roots).data(), scales_in(item.packed->root_scales), roots);
    unpack_states(item.slice.type.dtype, item.packed->kept, session.buffer(item).data(),
                  scales_in(item.packed->scales), roots, values);
  } else if (item.slice.type.dtype == DType::I16) {
    join_floats(session.buffer(*item.weights), session.buffer(item), dst);
  } else {
    std::ranges::copy(session.buffer(item), dst.begin());
  }
  return values;
}

inline void collect(const Session& session, Weights& weights) {
  for (const Persistent& item : session.step().persistents) {
    const Arena arena = item.slice.arena;
    if (item.name.find("_scale:") != std::string::npos) continue;  // part of what they scale
    if ((is_half(item.slice.type.dtype) && !item.packed) || arena == Arena::Gradients ||
        arena == Arena::Activations)
      continue;
    const std::vector<float> values = floats_of(session, item);
    for (const Piece& piece : item.pieces) {
      if (!piece.owned) continue;
      std::vector<float>& whole = weights[piece.tensor];
      whole.resize(static_cast<size_t>(piece.shape.elems()), -1.0f);
      const int64_t cols = piece.shape.elems() / piece.shape[0];
      int64_t at = piece.offset;
      for (int64_t row = piece.box.row_begin; row < piece.box.row_end; ++row) {
        for (int64_t col = piece.box.col_begin; col < piece.box.col_end; ++col)
          whole[static_cast<size_t>(row * cols + col)] = values[static_cast<size_t>(at++)];
      }
    }
  }
}

// Two steps of a tiny gpt2, or another model, on ranks that are threads. `adjust` has the last word on how it
// is compiled; `after` is what each rank does then.
struct RankedRun {
  Weights weights;
  std::vector<CompiledStep> steps;  // of each rank
};
inline RankedRun train_ranks(const MeshShape& shape, Strategy strategy, const KernelRegistry& registry,
                             const std::function<void(CompileOptions&)>& adjust,
                             const Graph& forward = build_model(tiny_gpt2(2), 2),
                             const std::function<void(Session&)>& after = {}) {
  std::vector<Communicators> comms = connect_threads(shape, {});
  std::vector<std::unique_ptr<ThreadPool>> pools;
  for (int rank = 0; rank < shape.world(); ++rank) pools.push_back(std::make_unique<ThreadPool>(1));
  std::vector<std::unique_ptr<Session>> sessions(static_cast<size_t>(shape.world()));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < shape.world(); ++rank) {
      threads.emplace_back([&, rank] {
        CompileOptions options;
        options.parallel.at = MeshPosition::of(shape, rank);
        options.parallel.strategy = strategy;
        options.fuse.bias_sums = true;
        options.fuse.attention_sums = [](const TensorType&, const Attrs&) { return true; };
        options.choose = choose_from(registry, 1);
        adjust(options);
        auto& session = sessions[static_cast<size_t>(rank)];
        session = std::make_unique<Session>(compile_step(forward, options), registry,
                                            *pools[static_cast<size_t>(rank)],
                                            shape.world() > 1 ? &comms[static_cast<size_t>(rank)] : nullptr);
        session->initialize(5);
        for (int step = 1; step <= 2; ++step) {
          const int64_t passes = options.parallel.micro_batches / session->step().micro_batches;
          for (int64_t i = 0; i < passes; ++i) {
            const bool last = i + 1 == passes && !session->step().last_pass.commands.empty();
            const Executable& pass = last ? session->step().last_pass : session->step().pass;
            for (const Binding& input : pass.inputs) {
              if (input.name != "scale") write_input(*session, pass, input, options.parallel.at.data);
            }
            const float scale = 0.01f;
            for (const Binding& input : pass.inputs) {
              if (input.name == "scale") session->write(pass, "scale", std::as_bytes(std::span(&scale, 1)));
            }
            if (last) {
              session->run_last_pass();
            } else {
              session->run_pass();
            }
          }
          std::vector<float> hyper = {1e-2f, 0.1f, static_cast<float>(step), 1.0f, 0.5f, 0, 0.75f};
          for (float own : {0.9f, 0.95f, 1e-8f, 0.95f}) hyper.push_back(own);
          hyper.resize(static_cast<size_t>(num_hyper_slots(options.optimizer)));
          const OptimizerEntry& entry = optimizer_entry(options.optimizer);
          for (size_t i = 0; entry.factored && i < entry.hyper.size(); ++i)
            hyper[kHyperOwn + i] = static_cast<float>(entry.hyper[i].value);
          session->write(session->step().update, "hyper", std::as_bytes(std::span(hyper)));
          const std::vector<double> stats(static_cast<size_t>(kNumStats) + session->step().metrics.size());
          session->write(session->step().update, "stats", std::as_bytes(std::span(stats)));
          session->run_update();
        }
        if (after) after(*session);
      });
    }
  }
  RankedRun run;
  for (const auto& session : sessions) {
    collect(*session, run.weights);
    run.steps.push_back(session->step());
  }
  return run;
}

}  // namespace tandem
