#include "tandem/train/saving/save_group.h"

#include <fmt/format.h>

#include <chrono>

namespace tandem {

SaveGroup save_group(const World& world) {
  if (world.size() == 1) return {};
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  SaveGroup group;
  group.rank = world.at().rank();
  group.world_size = world.size();
  group.token = fmt::format("{:x}", world.from_lead(static_cast<int64_t>(now), "save token"));
  group.timeout = world.comms()->timeout;
  group.check_peers = [&world] { world.check(); };
  return group;
}

}  // namespace tandem
