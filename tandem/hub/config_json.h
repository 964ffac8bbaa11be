// config.json of a Hugging Face directory, as transformers 4 or 5 wrote it, to a ModelConfig and back.
//
// Every key is known: it is read, or it is on the list of those that change nothing in the forward pass.
// Anything else is refused by its name, unless it says null, false, or nothing (empty text, list or object).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/dtype.h"
#include "tandem/config/config.h"
#include "tandem/hub/hub_family.h"

namespace tandem::hub {

inline constexpr int64_t kUsualContext = 2048;  // of a model that could take more, where nobody says

struct HubConfig {
  const HubFamily* family = nullptr;
  ModelConfig model;      // context: the positions, at most kUsualContext
  int64_t positions = 0;  // max_position_embeddings
  std::optional<DType> dtype;
  std::vector<std::string> notes;  // what is done otherwise than transformers would, a sentence each
  nlohmann::json json;             // the file itself
};

// Throws DataError where the text is no JSON object, ConfigError that starts with `origin` and names the key
// where the model is not one that can be built.
HubConfig parse_config_json(std::string_view text, const std::string& origin);
HubConfig read_config_json(const std::filesystem::path& directory);

// Of transformers 4 and 5 both: rope_theta and rope_parameters, torch_dtype and dtype.
nlohmann::ordered_json config_json(const HubFamily& family, const ModelConfig& model, int64_t positions,
                                   DType dtype);
// Adds to a config.json what only the other version's spelling has; sets the dtype.
void add_both_spellings(nlohmann::ordered_json& json, const HubConfig& config, DType dtype);

// The first family that has all that the model has. Throws ConfigError naming the key that none has.
const HubFamily& family_of(const ModelConfig& model, const std::string& origin);

// The first key in which two models differ that config.json knows; empty where they compute the same. Numbers
// that were written and read may differ in their last digit.
std::string first_difference(const ModelConfig& a, const ModelConfig& b);

}  // namespace tandem::hub
