// What a file system can do: shared ones and those of FUSE lack some of what a disk has.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr std::string_view kHiddenPrefix = ".tmp-";  // of what is not there yet

// Whether directories there can be renamed. Asked of the system where it is of a known kind, else tried with
// a hidden directory inside `directory`, which must exist, once for each file system. Throws IoError.
bool renames_directories(const std::filesystem::path& directory);

// To a place that is not there or an empty directory: by a rename, and where directories cannot be renamed
// file by file, the one that is called `last` last. Durable when it returns. Throws IoError.
void move_directory(const std::filesystem::path& from, const std::filesystem::path& to,
                    const std::string& last = "");

}  // namespace tandem
