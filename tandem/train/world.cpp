#include "tandem/train/world.h"

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/comm/membership.h"
#include "tandem/comm/tls/connect_encrypted.h"
#include "tandem/config/mesh.h"
#include "tandem/config/print.h"

namespace tandem {

void World::barrier(std::string_view label) const {
  if (size() > 1) world_comm()->barrier(label);
}

void World::sum(std::span<double> values, std::string_view label) const {
  if (size() > 1) world_comm()->all_reduce(std::as_writable_bytes(values), DType::F64, label);
}

bool World::all(bool mine, std::string_view label) const {
  double refusals = mine ? 0 : 1;
  sum({&refusals, 1}, label);
  return refusals == 0;
}

int64_t World::from_lead(int64_t value, std::string_view label) const {
  if (size() > 1) world_comm()->broadcast(std::as_writable_bytes(std::span(&value, 1)), 0, label);
  return value;
}

std::string World::from_lead(const std::string& text, std::string_view label) const {
  std::string result = text;
  result.resize(static_cast<size_t>(from_lead(static_cast<int64_t>(text.size()), label)));
  if (size() > 1) world_comm()->broadcast(std::as_writable_bytes(std::span(result)), 0, label);
  return result;
}

namespace {

// What may differ between ranks: it changes no number.
nlohmann::json comparable(const Config& config) {
  nlohmann::json json = to_json(config);
  for (const char* key : {"name", "device", "threads", "log"}) json.erase(key);
  return json;
}

// The first key in which two configs differ, "train.lr", and both values.
std::string first_difference(const nlohmann::json& mine, const nlohmann::json& theirs,
                             const std::string& prefix) {
  for (const auto& [key, value] : mine.items()) {
    const nlohmann::json other = theirs.value(key, nlohmann::json());
    if (value == other) continue;
    const std::string path = prefix + key;
    if (value.is_object() && other.is_object()) return first_difference(value, other, path + ".");
    return fmt::format("{} is {} here and {} on rank 0", path, value.dump(), other.dump());
  }
  return "it lacks keys of rank 0's";
}

// Ranks that were started with different configs would compute something else than anybody asked for.
void require_same_config(const Config& config, const World& world) {
  const nlohmann::json mine = comparable(config);
  const nlohmann::json leads = nlohmann::json::parse(world.from_lead(mine.dump(), "config"));
  if (mine != leads) {
    const std::string message = fmt::format("config of rank {}: {}; give all ranks the same config",
                                            world.at().rank(), first_difference(mine, leads, ""));
    world.abort(message);
    throw ConfigError("{}", message);
  }
  world.barrier("config");
}

}  // namespace

void World::check() const {
  if (comms_.membership && comms_.membership->ended()) throw CommError("{}", comms_.membership->reason());
}

ConnectOptions connect_options(const Config& config) {
  ConnectOptions options;
  options.timeout = wait_of(config.parallel.timeout);
  return options;
}

World join_world(const Config& config, const WorldInfo& info, const std::function<void()>& while_waiting) {
  const MeshShape shape = mesh_shape(config);
  if (config.parallel.strategy == Strategy::Dp && shape.world() > 1) {
    throw ConfigError(
        "parallel.strategy: dp is threads of one process, which start without a launcher; leave tandem "
        "launch "
        "away, or use parallel.strategy=ddp");
  }
  if (info.world_size != shape.world()) {
    const std::string mesh = fmt::format("parallel: data {} x tensor {} x pipeline {} needs {} ranks",
                                         shape.data, shape.tensor, shape.pipeline, shape.world());
    if (info.world_size == 1) {
      throw ConfigError("{}, found one process; start it with tandem launch --nproc-per-node {} ...", mesh,
                        shape.world());
    }
    const int rest = shape.tensor * shape.pipeline;
    if (info.world_size % rest != 0) {
      throw ConfigError("{}, found {} processes; start {} of them", mesh, info.world_size, shape.world());
    }
    throw ConfigError(
        "{}, found {} processes; start {} of them, or set parallel.data={} (and a strategy, such "
        "as parallel.strategy=ddp)",
        mesh, info.world_size, shape.world(), info.world_size / rest);
  }
  if (info.world_size == 1) return {};
  const MeshPosition at = MeshPosition::of(shape, info.rank);
  ConnectOptions connecting = connect_options(config);
  connecting.while_waiting = while_waiting;
  World world(at,
              config.parallel.tls ? connect_encrypted(info, at, connecting) : connect(info, at, connecting),
              info.local_world_size);
  require_same_config(config, world);
  return world;
}

}  // namespace tandem
