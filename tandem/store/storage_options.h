// How stores over a network are reached, where the environment does not say it: the config's `storage`.
#pragma once

#include <optional>
#include <string>

namespace tandem {

struct StorageOptions {
  std::string endpoint;            // empty: AWS_ENDPOINT_URL, else Amazon's own
  std::string region;              // empty: AWS_REGION, else the profile's
  std::optional<bool> path_style;  // bucket in the path instead of the host's name; none: with an endpoint
};

}  // namespace tandem
