#include "tandem/store/s3/place.h"

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem::s3 {
namespace {

constexpr std::string_view kBucketChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

std::string first_of(std::initializer_list<std::string> values) {
  for (const std::string& value : values) {
    if (!value.empty()) return value;
  }
  return {};
}

void set_endpoint(Place& place, const std::string& endpoint) {
  const size_t scheme = endpoint.find("://");
  place.scheme = endpoint.substr(0, scheme == std::string::npos ? 0 : scheme);
  if (place.scheme != "http" && place.scheme != "https") {
    throw ConfigError("storage.endpoint: expected a URL such as https://s3.example.com:9000, found '{}'",
                      endpoint);
  }
  const std::string rest = endpoint.substr(scheme + 3);
  const size_t slash = std::min(rest.find('/'), rest.size());
  place.host = rest.substr(0, slash);
  place.base = rest.substr(slash);
  while (place.base.ends_with("/")) place.base.pop_back();
  if (place.host.empty() || place.host.find_first_of("@?# ") != std::string::npos)
    throw ConfigError("storage.endpoint: expected a URL with a host and no more, found another");
}

}  // namespace

Request Place::request_for(const std::string& key) const {
  Request request;
  request.scheme = scheme;
  request.host = path_style ? host : bucket + "." + host;
  request.path = base + (path_style ? "/" + bucket : "") + "/" + url_encoded(key, /*keep_slashes=*/true);
  if (path_style && key.empty()) request.path.pop_back();
  return request;
}

Place find_place(const std::string& address, const StorageOptions& options, const Environment& environment) {
  Place place;
  if (!address.starts_with(kScheme)) throw ConfigError("{}: expected s3://BUCKET/PREFIX", address);
  const std::string rest = address.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  place.bucket = rest.substr(0, slash);
  place.prefix = rest.substr(std::min(slash + 1, rest.size()));
  while (place.prefix.ends_with("/")) place.prefix.pop_back();
  if (place.bucket.empty() || place.bucket.find_first_not_of(kBucketChars) != std::string::npos)
    throw ConfigError("{}: expected s3://BUCKET/PREFIX, a bucket of letters, digits, '.' and '-'", address);
  if (place.prefix.find("//") != std::string::npos || place.prefix.starts_with("/"))
    throw ConfigError("{}: expected single slashes between names", address);

  const auto profile = [&]() -> std::map<std::string, std::string> { return read_profile(environment); }();
  const auto of_profile = [&](const char* key) {
    const auto found = profile.find(key);
    return found != profile.end() ? found->second : std::string();
  };
  place.region = first_of({options.region, environment.variable("AWS_REGION"),
                           environment.variable("AWS_DEFAULT_REGION"), of_profile("region"), "us-east-1"});
  const std::string endpoint =
      first_of({options.endpoint, environment.variable("AWS_ENDPOINT_URL_S3"),
                environment.variable("AWS_ENDPOINT_URL"), of_profile("endpoint_url")});
  place.own_endpoint = !endpoint.empty();
  set_endpoint(place,
               place.own_endpoint ? endpoint : fmt::format("https://s3.{}.amazonaws.com", place.region));
  place.path_style =
      options.path_style.value_or(place.own_endpoint || place.bucket.find('.') != std::string::npos);
  place.checksums = environment.variable("AWS_REQUEST_CHECKSUM_CALCULATION") != "when_required";
  return place;
}

}  // namespace tandem::s3
