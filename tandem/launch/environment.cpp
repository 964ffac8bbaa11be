#include "tandem/launch/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/comm/kept_memory.h"
#include "tandem/comm/launch_notes.h"
#include "tandem/comm/places/place_page.h"

namespace tandem {
namespace {

// The local rank's among those that the launcher itself may see.
std::string visible_device(int local_rank, const std::vector<std::string>& inherited) {
  constexpr std::string_view kName = "CUDA_VISIBLE_DEVICES=";
  for (const std::string& entry : inherited) {
    if (!entry.starts_with(kName)) continue;
    std::istringstream devices(entry.substr(kName.size()));
    std::string device;
    for (int i = 0; i <= local_rank; ++i) {
      if (!std::getline(devices, device, ','))
        throw ConfigError(
            "--virtual-local-rank: CUDA_VISIBLE_DEVICES has no device for local rank {}, found '{}'",
            local_rank, entry.substr(kName.size()));
    }
    return device;
  }
  return std::to_string(local_rank);
}

}  // namespace

std::vector<std::string> rank_environment(const RankPlace& place, const std::vector<std::string>& inherited) {
  std::vector<std::pair<std::string, std::string>> variables = {
      {"RANK", std::to_string(place.rank)},
      {"LOCAL_RANK", std::to_string(place.virtual_local_rank ? 0 : place.local_rank)},
      {"WORLD_SIZE", std::to_string(place.world_size)},
      {"LOCAL_WORLD_SIZE", std::to_string(place.local_world_size)},
      {"GROUP_RANK", std::to_string(place.node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(place.num_nodes)},
      {"ROLE_NAME", place.role},
      {"ROLE_RANK", std::to_string(place.rank)},
      {"ROLE_WORLD_SIZE", std::to_string(place.world_size)},
      {"MASTER_ADDR", place.master_addr},
      {"MASTER_PORT", std::to_string(place.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(place.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(place.max_restarts)},
      {"TORCHELASTIC_RUN_ID", place.run_id},
      {"TORCHELASTIC_ERROR_FILE", place.notes.error.string()},
      {kLostPeerVariable, place.notes.lost_peer.string()},
      {kFinalVariable, place.notes.final_code.string()},
      {kInterruptedVariable, place.notes.interrupted.string()},
      {kKeptVariable, place.kept},
      {kPlaceVariable, place.page}};
  variables.emplace_back(kSecretVariable, place.secret.to_hex());
  if (place.secret.is_none()) variables.emplace_back(kInsecureVariable, "1");
  const auto has = [&](std::string_view name) {
    return std::any_of(inherited.begin(), inherited.end(), [&](const std::string& entry) {
      return entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
    });
  };
  // Ranks that each start a thread for every core spend their time waiting for each other.
  if (place.local_world_size > 1 && !has("OMP_NUM_THREADS")) variables.emplace_back("OMP_NUM_THREADS", "1");

  if (place.virtual_local_rank)
    variables.emplace_back("CUDA_VISIBLE_DEVICES", visible_device(place.local_rank, inherited));

  std::vector<std::string> environment;
  for (const std::string& entry : inherited) {
    const std::string_view name = std::string_view(entry).substr(0, entry.find('='));
    const bool replaced = std::any_of(variables.begin(), variables.end(),
                                      [&](const auto& variable) { return variable.first == name; });
    if (!replaced) environment.push_back(entry);
  }
  for (const auto& [name, value] : variables) environment.push_back(fmt::format("{}={}", name, value));
  return environment;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

}  // namespace tandem
