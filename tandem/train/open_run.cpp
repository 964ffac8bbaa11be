#include "tandem/train/open_run.h"

#include <optional>

#include "tandem/base/system.h"
#include "tandem/comm/places/place_page.h"
#include "tandem/data/fingerprint.h"
#include "tandem/store/store.h"
#include "tandem/train/config_changes.h"
#include "tandem/train/hub_start.h"
#include "tandem/train/model_state.h"
#include "tandem/train/saving/memory_copies.h"
#include "tandem/train/sinks.h"
#include "tandem/train/storage/store_behind.h"

namespace tandem {
namespace {

// Where copies in memory are newer than any checkpoint.
Latest restore_from_memory(const TrainOptions& options, const World& world, Session& session) {
  Latest found;
  const std::filesystem::path checkpoints = options.run_dir / "checkpoints";
  int64_t saved = 0;
  if (world.leads()) {
    const Latest on_disk = find_latest(checkpoints, Check::Sizes);
    saved = on_disk.manifest ? on_disk.manifest->meta.step : 0;
  }
  saved = world.from_lead(saved, "newest checkpoint");
  found.manifest = restore_copies(session, world, options.world, saved, found.skipped);
  if (found.manifest) found.manifest->directory = checkpoints / found.manifest->name;
  return found;
}

Latest restore_on_disk(const TrainOptions& options, const World& world, Session& session,
                       std::vector<Skipped> skipped) {
  Latest found = restore_latest(session, options.run_dir / "checkpoints", world);
  found.skipped.insert(found.skipped.begin(), skipped.begin(), skipped.end());
  return found;
}

Latest restore_state(const Config& config, const TrainOptions& options, const World& world,
                     Session& session) {
  session.initialize(static_cast<uint64_t>(config.train.seed));
  Latest found;
  switch (options.resume.kind) {
    case ResumeFrom::Kind::None: break;
    case ResumeFrom::Kind::Path: found = {restore(session, options.resume.path), {}}; break;
    case ResumeFrom::Kind::Latest:
      if (config.checkpoint.memory > 0) found = restore_from_memory(options, world, session);
      if (found.manifest) break;
      if (!found.skipped.empty()) session.initialize(static_cast<uint64_t>(config.train.seed));
      found = restore_on_disk(options, world, session, std::move(found.skipped));
      if (found.manifest || config.checkpoint.store.empty()) break;
      found = restore_latest(session, open_store(config.checkpoint.store), world);
      break;
  }
  if (found.manifest) {
    require_resumable(*found.manifest, config);  // it may be an older one
  } else if (starts_from_hub(config)) {
    load_hub(session, config, world);
  }
  return found;
}

// Rank 0 makes it when every rank has read what it needs from an earlier one.
RunDirectory make_directory(const TrainOptions& options, const World& world, RunLock& lock) {
  world.barrier("run directory");
  std::optional<RunDirectory> made;
  if (world.leads()) {
    made.emplace(options.run_dir, options.resume);
    lock.take(made->path());  // if it was not there before, or was moved
  }
  world.barrier("run directory");
  return made ? *made : RunDirectory(options.run_dir);
}

// Before a step is compiled for them.
void check_first_weights(const Config& config, const World& world) {
  if (starts_from_hub(config) && world.leads()) open_hub_weights(config);
}

}  // namespace

bool OpenRun::is_from_memory() const { return restored.manifest && restored.manifest->sequence < 0; }

bool OpenRun::goes_on_here() const {
  if (!restored.manifest) return false;
  std::error_code ignored;
  return std::filesystem::equivalent(restored.manifest->directory.parent_path(), directory.checkpoints(),
                                     ignored);
}

void check_start(const Config& config, const TrainOptions& options, const World& world,
                 const std::function<void()>& while_waiting) {
  tell_run_directory(std::filesystem::absolute(options.run_dir).string());
  if (world.leads()) check_sinks(config.log);
  if (config.checkpoint.memory > 0) require_kept_memory();
  if (world.leads()) check_run_directory(options.run_dir);
  check_store(config, options, world, while_waiting);
  switch (options.resume.kind) {
    case ResumeFrom::Kind::None: return check_first_weights(config, world);
    case ResumeFrom::Kind::Path: return require_resumable(read_manifest(options.resume.path), config);
    case ResumeFrom::Kind::Latest: break;
  }
  Latest newest = find_latest(options.run_dir / "checkpoints", Check::Sizes);
  if (!newest.manifest && !config.checkpoint.store.empty() && world.leads())
    newest = find_latest(open_store(config.checkpoint.store), Check::Sizes);
  if (newest.manifest) return require_resumable(*newest.manifest, config);
  check_first_weights(config, world);
}

OpenRun open_run(const Config& config, const Backend& backend, const TrainOptions& options,
                 const World& world, const std::function<void()>& while_compiling) {
  // First, so that the sensors are found while the step is compiled. They are rank 0's.
  DeviceFigures figures = world.leads() ? DeviceFigures(backend, world.comms()) : DeviceFigures();
  auto steps = std::make_unique<RunSession>(config, backend, options.model, world, while_compiling);
  std::string data = fingerprint(steps->train_data());
  std::string hardware = hardware_description();
  if (backend.name_device) hardware = fmt::format("{}, {}", backend.name_device(world.comms()), hardware);

  tell_state(PlaceState::Restoring);
  RunLock lock;
  if (world.leads()) {
    // A rank of the attempt before may still hold it, on a node that is cut off and about to find that out.
    constexpr double kLastAttempt_s = 60;
    lock.take(options.run_dir, options.world.restart_count > 0 ? kLastAttempt_s : 0);
    StoreRef(options.run_dir / "checkpoints")->put_back_replaced();
  }
  Latest restored = restore_state(config, options, world, steps->session());
  RunDirectory directory = make_directory(options, world, lock);
  const std::filesystem::path path = directory.path();
  return {config,
          backend,
          options,
          world,
          std::move(figures),
          std::move(steps),
          std::move(data),
          std::move(hardware),
          std::move(lock),
          std::move(restored),
          std::move(directory),
          Journal(path, config, world.at().rank(), world.size())};
}

}  // namespace tandem
