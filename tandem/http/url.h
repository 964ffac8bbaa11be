// Addresses of servers that are told something.
#pragma once

#include <string>
#include <string_view>

namespace tandem::http {

// Scheme, host and port, without what may be a secret in it: user, password, path and query.
std::string host_of(const std::string& url);

// As a segment of a path: all but letters, digits and -._~ as %41.
std::string percent_encoded(std::string_view text);

}  // namespace tandem::http
