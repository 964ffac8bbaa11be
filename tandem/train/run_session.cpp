#include "tandem/train/run_session.h"

#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/train/fit.h"
#include "tandem/train/run_data.h"
#include "tandem/train/saving/memory_copies.h"

namespace tandem {
namespace {

CompiledStep compile_to_fit(const Config& config, const Backend& backend, const BuildModel& model,
                            const World& world, const std::function<void()>& while_compiling) {
  CompileOptions options = compile_options(config, backend, world.at(), world.ranks_here());
  options.while_compiling = while_compiling;
  CompiledStep step = compile_config(config, options, model);
  require_fit(config, backend, step, model, world.ranks_here(), while_compiling);
  step.sizes[static_cast<size_t>(Arena::Host)] -=
      kept_bytes(config, options, model);  // the launcher has those
  return step;
}

// Its ranks may have been interrupted at different moments, or only one of them.
CompiledStep compile_on_all(const Config& config, const Backend& backend, const BuildModel& model,
                            const World& world, const std::function<void()>& while_compiling,
                            int64_t& idle_rss) {
  std::optional<CompiledStep> step;
  try {
    step = compile_to_fit(config, backend, model, world, while_compiling);
  } catch (const Interruption&) {
  }
  if (!world.all(step.has_value(), "compiled step"))
    throw Interruption("interrupted while the step was compiled; nothing is lost");
  idle_rss = rss_bytes();
  return std::move(*step);
}

}  // namespace

RunSession::RunSession(const Config& config, const Backend& backend, const BuildModel& model,
                       const World& world, const std::function<void()>& while_compiling)
    : train_data_(open_run_data(config, Split::Train)),
      eval_data_(open_run_data(config, Split::Eval)),
      pool_(thread_count(config, world.ranks_here())),
      session_(compile_on_all(config, backend, model, world, while_compiling, idle_rss_), backend, pool_,
               world.comms()),
      host_(host_layout(config, session_.step())),
      loader_(*train_data_, train_loader_options(config, world.at()), host_part(0, host_.train_ring)),
      eval_sets_(config.data.eval, *eval_data_, eval_loader_options(config, world.at()),
                 host_part(host_.train_ring, host_.eval_ring)),
      runner_(config, session_, loader_, norm_groups(config, model)) {}

std::span<std::byte> RunSession::host_part(int64_t offset, int64_t bytes) const {
  return session_.host().subspan(static_cast<size_t>(session_.step().host_begin + offset),
                                 static_cast<size_t>(bytes));
}

std::span<std::byte> RunSession::staging() const {
  return host_part(host_.train_ring + host_.eval_ring, host_.staging);
}

std::span<std::byte> RunSession::upload_memory() const {
  return host_part(host_.train_ring + host_.eval_ring + host_.staging, host_.upload);
}

}  // namespace tandem
