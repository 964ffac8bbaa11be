#include "tandem/train/saving/save_group.h"

#include <fmt/format.h>

#include <chrono>

namespace tandem {

SaveGroup save_group(const World& world, int64_t bytes) {
  if (world.size() == 1) return {};
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  SaveGroup group;
  group.rank = world.at().rank();
  group.world_size = world.size();
  group.token = fmt::format("{:x}", world.from_lead(static_cast<int64_t>(now), "save token"));
  group.timeout = world.comms()->timeout;
  group.check_peers = [&world] { world.check(); };
  auto total = static_cast<double>(bytes);
  world.sum({&total, 1}, "bytes of a save");
  group.total_bytes = static_cast<int64_t>(total);
  return group;
}

}  // namespace tandem
