#include "tandem/checkpoint/mend.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/checkpoint/layout.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Oldest first, without the skipped ones and those that cannot be read.
std::vector<fs::path> older_than(const Manifest& newest, const fs::path& folder,
                                 const std::vector<Skipped>& skipped) {
  std::vector<std::pair<int64_t, fs::path>> found;
  for (const fs::path& directory : list_checkpoints(folder)) {
    const auto is_it = [&](const Skipped& bad) { return bad.directory.filename() == directory.filename(); };
    if (std::any_of(skipped.begin(), skipped.end(), is_it)) continue;
    try {
      const int64_t sequence = read_manifest(directory).sequence;
      if (sequence < newest.sequence) found.emplace_back(sequence, directory);
    } catch (const Error&) {  // whoever looked for the newest has told of it
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> directories;
  for (auto& [sequence, directory] : found) directories.push_back(std::move(directory));
  return directories;
}

}  // namespace

std::vector<std::string> mend_checkpoints(const fs::path& folder, int keep, const Latest& restored) {
  std::vector<std::string> troubles = remove_leftovers(folder);
  if (!restored.manifest) return troubles;
  const auto attempt = [&](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      troubles.emplace_back(error.what());
    }
  };
  const Manifest& newest = *restored.manifest;
  const fs::path name = newest.directory.filename();
  std::error_code error;
  if (fs::read_symlink(folder / "latest", error) != name)
    attempt([&] { point_latest(folder, name.string()); });
  if (keep == 0) return troubles;
  std::vector<fs::path> older;
  attempt([&] { older = older_than(newest, folder, restored.skipped); });
  for (size_t i = 0; i + static_cast<size_t>(keep) <= older.size(); ++i)
    attempt([&] { remove_checkpoint(older[i]); });
  return troubles;
}

}  // namespace tandem
