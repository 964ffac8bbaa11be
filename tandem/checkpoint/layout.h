// The checkpoints of a run: bundles (store/store.h) step-00000100, ..., `latest`, which stands for the
// newest, and `best`, where one is kept. On a disk they are directories and a symbolic link, and while a save
// is under way there is .tmp-step-00000100-TOKEN/ (pending.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/store/store.h"

namespace tandem {

inline constexpr const char* kLatest = "latest";
inline constexpr const char* kBest = "best";  // of what was saved as such; it is kept, however old

std::string checkpoint_name(int64_t step);  // "step-00000100"
bool is_checkpoint_name(std::string_view name);

// Names, lowest step first. A missing folder has none.
std::vector<std::string> list_checkpoints(const StoreRef& store);

}  // namespace tandem
