#include "tandem/store/s3/sign.h"

#include <fmt/format.h>

#include "tandem/base/sha256.h"

namespace tandem::s3 {
namespace {

std::string time_text(std::time_t now, const char* form) {
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), form, &parts)};
}

std::string payload_hash(const Request& request) {
  if (request.body.size() > kMostSignedBody) return "UNSIGNED-PAYLOAD";
  const std::string_view body(reinterpret_cast<const char*>(request.body.data()), request.body.size());
  return hex(as_text(sha256(body)));
}

// The headers that are signed: host and whatever is Amazon's.
std::map<std::string, std::string> signed_headers(const Request& request) {
  std::map<std::string, std::string> headers;
  for (const auto& [name, value] : request.headers) {
    if (name == "host" || name == "content-type" || name.starts_with("x-amz-")) headers[name] = value;
  }
  return headers;
}

}  // namespace

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

void sign(Request& request, const KeyPair& keys, const SigningScope& scope, std::time_t now) {
  const std::string date = time_text(now, "%Y%m%d"), time = time_text(now, "%Y%m%dT%H%M%SZ");
  const std::string payload = payload_hash(request);
  request.headers["host"] = request.host;
  request.headers["x-amz-date"] = time;
  request.headers["x-amz-content-sha256"] = payload;
  if (!keys.session.empty()) request.headers["x-amz-security-token"] = keys.session;

  std::string headers, names;
  for (const auto& [name, value] : signed_headers(request)) {
    headers += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path,
                                            query_text(request.query), headers, names, payload);
  const std::string place = fmt::format("{}/{}/{}/aws4_request", date, scope.region, scope.service);
  const std::string to_sign =
      fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, place, hex(as_text(sha256(canonical))));
  Sha256 key = hmac_sha256("AWS4" + keys.secret, date);
  for (const std::string_view part :
       {std::string_view(scope.region), std::string_view(scope.service), std::string_view("aws4_request")})
    key = hmac_sha256(as_text(key), part);
  request.headers["authorization"] =
      fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}", keys.id, place, names,
                  hex(as_text(hmac_sha256(as_text(key), to_sign))));
}

}  // namespace tandem::s3
