// The text of manifests and of their parts: JSON that carries a digest of itself.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/checkpoint/manifest.h"

namespace tandem {

// Adds the format's version and a digest of everything else.
std::string seal(nlohmann::json content);

// Throws DataError starting with `origin` unless the text is what seal gave, to the byte. `what` it should be
// is for the message: "manifest".
nlohmann::json unseal(std::string_view text, std::string_view what, const std::string& origin);

// A member that has to be a whole number: json would cut off the fraction of another. DataError otherwise.
int64_t whole_number(const nlohmann::json& object, const char* key, int64_t least, int64_t most);
inline constexpr int64_t kMostDigestBlock = int64_t{1} << 40;

nlohmann::json to_json(const std::vector<CheckpointFile>& files);
nlohmann::json to_json(const std::vector<TensorEntry>& tensors);
nlohmann::json to_json(const Manifest& manifest);

// These throw json::exception where something is missing or of another type, DataError or ConfigError where
// it makes no sense.
std::vector<CheckpointFile> to_files(const nlohmann::json& value);
std::vector<TensorEntry> to_tensors(const nlohmann::json& value, int version);
Manifest to_manifest(const nlohmann::json& value);

}  // namespace tandem
