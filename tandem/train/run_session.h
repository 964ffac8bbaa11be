// Everything a config needs to run steps: data, threads, the compiled step in its arenas, loaders and the
// step runner. Training, profiles and benchmarks start from here.
#pragma once

#include <functional>
#include <memory>

#include "tandem/data/dataset.h"
#include "tandem/data/loader.h"
#include "tandem/runtime/backend.h"
#include "tandem/runtime/session.h"
#include "tandem/train/compile_config.h"
#include "tandem/train/evaluation/eval_sets.h"
#include "tandem/train/step_runner.h"
#include "tandem/train/world.h"

namespace tandem {

class RunSession {
 public:
  // Throws PlanError when the plan does not fit, before any memory is taken. Weights are not initialised.
  // `world` outlives it. Calls `while_compiling` every now and then; where it throws an Interruption, the
  // ranks agree on it, and all of them throw one.
  RunSession(const Config& config, const Backend& backend, const BuildModel& model, const World& world,
             const std::function<void()>& while_compiling = {});

  Session& session() { return session_; }
  Loader& loader() { return loader_; }
  EvalSets& eval_sets() { return eval_sets_; }
  StepRunner& runner() { return runner_; }
  const Dataset& train_data() const { return *train_data_; }
  const Dataset& eval_data() const { return *eval_data_; }
  std::span<std::byte> staging() const;        // for asynchronous checkpoints; empty without them
  std::span<std::byte> upload_memory() const;  // for checkpoint.store; empty without one
  // Resident just before the arenas were allocated: the program, its libraries and the open data sets.
  int64_t idle_rss_bytes() const { return idle_rss_; }

 private:
  std::span<std::byte> host_part(int64_t offset, int64_t bytes) const;

  std::unique_ptr<Dataset> train_data_, eval_data_;
  ThreadPool pool_;
  int64_t idle_rss_ = 0;  // before session_, whose construction sets it
  Session session_;
  HostLayout host_;
  Loader loader_;
  EvalSets eval_sets_;
  StepRunner runner_;
};

}  // namespace tandem
