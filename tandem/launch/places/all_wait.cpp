#include "tandem/launch/places/all_wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tandem/launch/failure.h"

namespace tandem {
namespace {

constexpr size_t kMostTold = 8;  // kinds of waits; hangs/ has all of them

bool waits(const Whereabouts& place) {
  return place.collective && !place.computes && place.call() != nullptr && place.state != "gone" &&
         place.state != "done" && place.state != "stopped" && place.state != "stuck";
}

}  // namespace

std::optional<AllWait> find_all_wait(std::span<const Whereabouts> ranks) {
  if (ranks.size() < 2 || static_cast<int>(ranks.size()) != ranks.front().shape.world() ||
      !std::all_of(ranks.begin(), ranks.end(), waits))
    return std::nullopt;
  AllWait found{ranks.front().since_s, true, ""};
  std::vector<std::pair<std::string, std::vector<int>>> told;  // who waits in the same place
  for (const Whereabouts& place : ranks) {
    found.for_s = std::min(found.for_s, place.since_s);
    found.certain = found.certain && place.waits_for_late;
    const std::string what =
        fmt::format("{} {}", describe_place(place),
                    place.waiting_for.empty() ? "to which all have come"
                                              : fmt::format("for {}", describe_ranks(place.waiting_for)));
    const auto same =
        std::find_if(told.begin(), told.end(), [&](const auto& entry) { return entry.first == what; });
    if (same != told.end()) {
      same->second.push_back(place.rank);
    } else {
      told.emplace_back(what, std::vector<int>{place.rank});
    }
  }
  for (size_t i = 0; i < std::min(told.size(), kMostTold); ++i)
    found.who += fmt::format("{}{} {}", i == 0 ? "" : "; ", describe_ranks(told[i].second), told[i].first);
  if (told.size() > kMostTold) found.who += fmt::format("; and {} more", told.size() - kMostTold);
  return found;
}

}  // namespace tandem
