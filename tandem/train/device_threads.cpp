#include "tandem/train/device_threads.h"

#include <exception>
#include <mutex>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/places/place_page.h"
#include "tandem/config/mesh.h"

namespace tandem {

ExitCode run_device_threads(const Config& config, const std::function<ExitCode(const World&)>& rank) {
  const MeshShape shape = mesh_shape(config);
  std::vector<Communicators> comms = connect_threads(shape, connect_options(config));
  std::vector<World> worlds;
  for (int i = 0; i < shape.world(); ++i)
    worlds.emplace_back(MeshPosition::of(shape, i), std::move(comms[static_cast<size_t>(i)]), shape.world());

  ExitCode result = ExitCode::Failed;
  std::mutex mutex;
  std::exception_ptr cause, consequence;  // the first of each: a rank whose peer is gone has a CommError
  {
    std::vector<std::jthread> threads;
    for (const World& world : worlds) {
      threads.emplace_back([&] {
        try {
          const ExitCode code = rank(world);
          if (world.leads()) result = code;
        } catch (const CommError&) {
          const std::lock_guard lock(mutex);
          if (!consequence) consequence = std::current_exception();
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!cause) cause = std::current_exception();
        }
      });
    }
  }
  if (cause) std::rethrow_exception(cause);
  if (consequence) std::rethrow_exception(consequence);
  return result;
}

ExitCode run_in_world(const Config& config, const WorldInfo& info,
                      const std::function<ExitCode(const World&)>& rank,
                      const std::function<void()>& while_waiting) {
  const auto run = [&](const World& world) {
    try {
      return rank(world);
    } catch (const Interruption&) {
      throw;  // all ranks know
    } catch (const std::exception& error) {
      world.abort(error.what());
      throw;
    }
  };
  if (config.parallel.strategy == Strategy::Dp && config.parallel.data > 1 && info.world_size == 1)
    return run_device_threads(config, run);
  open_place(info.rank, mesh_shape(config));
  tell_state(PlaceState::Connecting);
  const World world = join_world(config, info, while_waiting);
  tell_state(PlaceState::Compiling);
  return run(world);
}

}  // namespace tandem
