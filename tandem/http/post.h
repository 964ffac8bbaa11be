// Sends a small JSON object to somebody's server, over http or https (libcurl).
#pragma once

#include <chrono>
#include <string>

namespace tandem::http {

// Empty where the server has answered with a status of 2xx, else why not. Returns within `limit`.
// Redirections are not followed: what is sent goes to the address that was given, and nowhere else.
std::string post_json(const std::string& url, const std::string& body, std::chrono::milliseconds limit);

}  // namespace tandem::http
