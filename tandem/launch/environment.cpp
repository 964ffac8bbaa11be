#include "tandem/launch/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tandem/comm/launch_notes.h"

namespace tandem {

std::vector<std::string> rank_environment(const RankPlace& place, const std::vector<std::string>& inherited) {
  std::vector<std::pair<std::string, std::string>> variables = {
      {"RANK", std::to_string(place.rank)},
      {"LOCAL_RANK", std::to_string(place.local_rank)},
      {"WORLD_SIZE", std::to_string(place.world_size)},
      {"LOCAL_WORLD_SIZE", std::to_string(place.local_world_size)},
      {"GROUP_RANK", std::to_string(place.node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(place.num_nodes)},
      {"ROLE_NAME", "default"},
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
      {kInterruptedVariable, place.notes.interrupted.string()}};
  variables.emplace_back(kSecretVariable, place.secret.to_hex());
  if (place.secret.is_none()) variables.emplace_back(kInsecureVariable, "1");
  const auto has = [&](std::string_view name) {
    return std::any_of(inherited.begin(), inherited.end(), [&](const std::string& entry) {
      return entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
    });
  };
  // Ranks that each start a thread for every core spend their time waiting for each other.
  if (place.local_world_size > 1 && !has("OMP_NUM_THREADS")) variables.emplace_back("OMP_NUM_THREADS", "1");

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
