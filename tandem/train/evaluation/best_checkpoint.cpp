#include "tandem/train/evaluation/best_checkpoint.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/mend.h"
#include "tandem/checkpoint/reader.h"
#include "tandem/store/store.h"

namespace tandem {

void mend_best(const std::filesystem::path& checkpoints, const EvalWatch& watch) {
  if (!watch.kept()) return;
  const StoreRef store(checkpoints);
  const std::string name = checkpoint_name(watch.kept()->step);
  const std::vector<std::string> there = list_checkpoints(store);
  if (std::find(there.begin(), there.end(), name) == there.end() || store->alias(kBest) == name) return;
  store->set_alias(kBest, name);
}

}  // namespace tandem
