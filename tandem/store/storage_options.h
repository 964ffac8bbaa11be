// How stores over a network are reached, where the environment does not say it: the config's `storage`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

struct StorageOptions {
  std::string endpoint;            // empty: AWS_ENDPOINT_URL, else Amazon's own
  std::string region;              // empty: AWS_REGION, else the profile's
  std::optional<bool> path_style;  // bucket in the path instead of the host's name; none: with an endpoint
  std::string cache;  // directory for what is read from there; empty: $XDG_CACHE_HOME/tandem, ~/.cache/tandem
  int64_t cache_size = int64_t{8} << 30;  // bytes in it at most
};

}  // namespace tandem
