#include "tandem/launch/elastic.h"

#include <algorithm>

namespace tandem {

int ranks_left(std::span<const RankEnd> ends, int unit) {
  const auto is_lost = [](const RankEnd& end) {
    return end.stopped != 0 || !end.hinders.empty() || (end.failed() && !end.told && !end.lost_peer);
  };
  const auto all = static_cast<int>(ends.size());
  const auto lost = static_cast<int>(std::count_if(ends.begin(), ends.end(), is_lost));
  return lost == all ? all : std::max((all - lost) / unit, 1) * unit;
}

bool all_done(std::span<const RankEnd> ends) {
  return std::all_of(ends.begin(), ends.end(),
                     [](const RankEnd& end) { return end.signal == 0 && end.exit_code == 0; });
}

}  // namespace tandem
