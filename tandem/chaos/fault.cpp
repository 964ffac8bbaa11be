#include "tandem/chaos/fault.h"

#include <algorithm>
#include <iterator>
#include <random>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"

namespace tandem::chaos {

std::vector<Kind> parse_kinds(std::string_view text) {
  std::vector<Kind> kinds;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    begin = end + 1;
    const auto* found = std::find(std::begin(kKindNames), std::end(kKindNames), word);
    if (found == std::end(kKindNames))
      throw ConfigError("--kinds: expected a list of kill, stop, term, flip, disk and net, found '{}'", word);
    const auto kind = static_cast<Kind>(found - std::begin(kKindNames));
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

std::string_view name_of(Kind kind) { return kKindNames[static_cast<size_t>(kind)]; }

Fault choose_fault(uint64_t seed, int64_t number, const std::vector<Kind>& kinds, int num_ranks) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(number));
  random.discard(16);  // seeds that are close give first numbers that are
  Fault fault;
  fault.kind = kinds[static_cast<size_t>(number) % kinds.size()];
  fault.at = static_cast<double>(random() >> 11) * 0x1p-53;
  fault.rank = static_cast<int>(random() % static_cast<uint64_t>(num_ranks));
  fault.where = random();
  return fault;
}

}  // namespace tandem::chaos
