// Rotary positions in config.json: rope_theta and rope_scaling (transformers 4), or rope_parameters (5),
// which may have an object for each type of layer.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tandem/config/config.h"
#include "tandem/hub/hub_family.h"
#include "tandem/hub/json_keys.h"

namespace tandem::hub {

struct RopeNumbers {
  double theta = 10000;
  std::string scaling = "none";  // of model.rope_scaling
  double local_theta = 0;        // of layers with a window; 0: as the others
  double partial = 1;            // of a head's features
  bool operator==(const RopeNumbers&) const = default;
};

// Where the file has both spellings, they have to say the same.
RopeNumbers read_rope(JsonKeys& keys, const HubFamily& family, int64_t positions);

// Sets rope_theta, rope_scaling and rope_parameters, and what a family has beside them.
void write_rope(nlohmann::ordered_json& json, const HubFamily& family, const RopeNumbers& rope);

}  // namespace tandem::hub
