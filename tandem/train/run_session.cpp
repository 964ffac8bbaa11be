#include "tandem/train/run_session.h"

#include "tandem/base/system.h"
#include "tandem/train/run_data.h"

namespace tandem {
namespace {

CompiledStep compile_to_fit(const Config& config, const Backend& backend, const BuildModel& model,
                            const World& world, int64_t& idle_rss) {
  CompiledStep step =
      compile_config(config, compile_options(config, backend, world.at(), world.ranks_here()), model);
  require_fit(config, backend, step, model, world.ranks_here());
  idle_rss = rss_bytes();
  return step;
}

}  // namespace

RunSession::RunSession(const Config& config, const Backend& backend, const BuildModel& model,
                       const World& world)
    : train_data_(open_run_data(config, Split::Train)),
      eval_data_(open_run_data(config, Split::Eval)),
      pool_(thread_count(config, world.ranks_here())),
      session_(compile_to_fit(config, backend, model, world, idle_rss_), backend, pool_, world.comms()),
      host_(host_layout(config, session_.step())),
      loader_(*train_data_, train_loader_options(config, world.at()), host_part(0, host_.train_ring)),
      eval_loader_(*eval_data_, eval_loader_options(config, world.at()),
                   host_part(host_.train_ring, host_.eval_ring)),
      runner_(config, session_, loader_) {}

std::span<std::byte> RunSession::host_part(int64_t offset, int64_t bytes) const {
  return session_.host().subspan(static_cast<size_t>(session_.step().host_begin + offset),
                                 static_cast<size_t>(bytes));
}

std::span<std::byte> RunSession::staging() const {
  return host_part(host_.train_ring + host_.eval_ring, host_.staging);
}

}  // namespace tandem
