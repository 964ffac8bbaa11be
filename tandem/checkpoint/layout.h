// The checkpoints folder of a run: step-00000100/, latest (a symbolic link to the newest), and while a save
// is under way .tmp-step-00000100-TOKEN/ (pending.h). A step-* directory appears and disappears by a rename:
// whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

inline constexpr std::string_view kPendingPrefix = ".tmp-";

std::string checkpoint_name(int64_t step);  // "step-00000100"
bool is_checkpoint_name(std::string_view name);

// Every step-* directory, lowest step first. A missing folder has none.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);

void point_latest(const std::filesystem::path& folder,
                  const std::string& name);  // at folder/name, atomically

void remove_checkpoint(const std::filesystem::path& checkpoint);

// Where a checkpoint goes for the moment in which another of its name takes its place, on file systems that
// cannot exchange two directories.
std::filesystem::path aside_path(const std::filesystem::path& checkpoint);

// Those that a kill in that moment left aside get their names back. Before anybody looks for the newest.
void put_back_replaced(const std::filesystem::path& folder);

// Removes what writers that were killed left behind; leaves what a living one is filling. Returns a sentence
// for each that cannot be removed: it is in nobody's way.
std::vector<std::string> remove_leftovers(const std::filesystem::path& folder);

}  // namespace tandem
