#include "tandem/checkpoint/mend.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/checkpoint/layout.h"

namespace tandem {
namespace {

// Oldest first, without the skipped ones and those that cannot be read.
std::vector<std::string> older_than(const Manifest& newest, const StoreRef& store,
                                    const std::vector<Skipped>& skipped) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : list_checkpoints(store)) {
    const auto is_it = [&](const Skipped& bad) { return bad.directory.filename() == name; };
    if (std::any_of(skipped.begin(), skipped.end(), is_it)) continue;
    try {
      const int64_t sequence = read_manifest(store, name).sequence;
      if (sequence < newest.sequence) found.emplace_back(sequence, name);
    } catch (const Error&) {  // whoever looked for the newest has told of it
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (auto& [sequence, name] : found) names.push_back(std::move(name));
  return names;
}

}  // namespace

std::vector<std::string> mend_checkpoints(const StoreRef& store, int keep, const Latest& restored) {
  std::vector<std::string> troubles = store->remove_leftovers(is_checkpoint_name);
  if (!restored.manifest) return troubles;
  const auto attempt = [&](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      troubles.emplace_back(error.what());
    }
  };
  const Manifest& newest = *restored.manifest;
  const std::string name = newest.directory.filename().string();
  attempt([&] {
    if (store->alias(kLatest) != name) store->set_alias(kLatest, name);
  });
  if (keep == 0) return troubles;
  std::vector<std::string> older;
  attempt([&] { older = older_than(newest, store, restored.skipped); });
  std::optional<std::string> best;
  attempt([&] { best = store->alias(kBest); });
  for (size_t i = 0; i + static_cast<size_t>(keep) <= older.size(); ++i) {
    if (older[i] != best) attempt([&] { store->remove_bundle(older[i]); });
  }
  return troubles;
}

}  // namespace tandem
