// AWS's signature version 4: a proof, good for some minutes, that a request comes from who knows the secret
// key. The key itself is never sent.
#pragma once

#include <ctime>
#include <string>

#include "tandem/store/s3/request.h"

namespace tandem::s3 {

struct KeyPair {
  std::string id;
  std::string secret;
  std::string session;  // of keys that are lent for a time; else empty
};

struct SigningScope {
  std::string region;
  std::string service = "s3";
};

// How much of a body is hashed into the signature. What is longer says UNSIGNED-PAYLOAD and is protected by
// TLS and by the CRC-32C that goes with it: SHA-256 of gigabytes would cost more than sending them.
inline constexpr size_t kMostSignedBody = size_t{64} << 10;

// Adds host, x-amz-date, x-amz-content-sha256, x-amz-security-token and authorization.
void sign(Request& request, const KeyPair& keys, const SigningScope& scope, std::time_t now);

std::string hex(std::string_view bytes);

}  // namespace tandem::s3
