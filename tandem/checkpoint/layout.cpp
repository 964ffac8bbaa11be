#include "tandem/checkpoint/layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {
namespace {

constexpr std::string_view kStepPrefix = "step-";

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

bool is_checkpoint_name(std::string_view name) {
  return name.size() > kStepPrefix.size() && name.starts_with(kStepPrefix) &&
         std::all_of(name.begin() + kStepPrefix.size(), name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string> list_checkpoints(const StoreRef& store) {
  std::vector<std::string> names = store->bundles();
  std::erase_if(names, [](const std::string& name) { return !is_checkpoint_name(name); });
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;  // nine digits sort after eight
  });
  return names;
}

}  // namespace tandem
