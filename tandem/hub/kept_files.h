// What a run keeps of the directory that its model came from, in its folder hub/: the small files, byte for
// byte, and how the weights were stored. An export gives them back.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/dtype.h"
#include "tandem/hub/hub_weights.h"

namespace tandem::hub {

inline constexpr std::string_view kKeptFolder = "hub";

// Names of a directory's small files: config.json, tokenizer and template files.
std::vector<std::string> small_files(const std::filesystem::path& directory);

// Of the weights' files: names with or without their prefix, and each tensor's type.
struct StoredAs {
  std::string prefix;
  std::map<std::string, DType> dtypes;
};

// <run>/hub, for a checkpoint in <run>/checkpoints, however its path is spelled.
std::filesystem::path kept_folder_of(const std::filesystem::path& checkpoint);

// Copies the small files, and of a kept folder what it says of the weights, into `folder`, config.json last;
// each appears whole or not at all.
void keep_files(const std::filesystem::path& directory, const std::filesystem::path& folder);
void keep_stored_as(const HubWeights& weights, const std::filesystem::path& folder);
std::optional<StoredAs> read_stored_as(const std::filesystem::path& folder);  // nothing where there is none

}  // namespace tandem::hub
