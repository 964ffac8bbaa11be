// Where a bucket is and how it is asked: from an address "s3://bucket/prefix", the config's storage and the
// environment.
#pragma once

#include <string>

#include "tandem/store/s3/credentials.h"
#include "tandem/store/storage_options.h"

namespace tandem::s3 {

inline constexpr std::string_view kScheme = "s3://";

struct Place {
  std::string bucket;
  std::string prefix;  // without a slash at its end; may be empty
  std::string scheme;  // of the endpoint
  std::string host;    // of the endpoint, without the bucket
  std::string base;    // the endpoint's own path, "" or "/gateway"
  std::string region;
  bool own_endpoint = false;  // not Amazon's: its host does not follow the region
  bool path_style = false;
  bool checksums = true;  // CRC-32C with each put; AWS_REQUEST_CHECKSUM_CALCULATION=when_required: not

  std::string key(const std::string& name) const { return prefix.empty() ? name : prefix + "/" + name; }
  Request request_for(const std::string& key) const;  // method, query and headers are the caller's
};

// Throws ConfigError naming the address or the setting at fault.
Place find_place(const std::string& address, const StorageOptions& options, const Environment& environment);

}  // namespace tandem::s3
