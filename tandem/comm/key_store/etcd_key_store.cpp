#include "tandem/comm/key_store/etcd_key_store.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/comm/key_store/poll_for_key.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t length = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j)
      group = group << 8 | (j < length ? static_cast<unsigned char>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) text += j <= length ? kDigits[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::string from_base64(std::string_view text) {
  std::string bytes;
  uint32_t group = 0;
  int num_bits = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    group = group << 6 | static_cast<uint32_t>(digit);
    num_bits += 6;
    if (num_bits >= 8) bytes += static_cast<char>(group >> (num_bits -= 8) & 0xff);
  }
  return bytes;
}

size_t append(char* data, size_t size, size_t count, void* text) {
  static_cast<std::string*>(text)->append(data, size * count);
  return size * count;
}

// The first value of an answer to a range request; etcd leaves empty lists and empty values out.
std::optional<std::string> first_value(const json& answer) {
  if (!answer.contains("kvs") || answer["kvs"].empty()) return std::nullopt;
  return from_base64(answer["kvs"][0].value("value", ""));
}

}  // namespace

EtcdKeyStore::EtcdKeyStore(const std::string& host, int port, const std::string& prefix,
                           std::chrono::milliseconds timeout)
    : url_(fmt::format("http://{}:{}/v3/kv/", host.find(':') == std::string::npos ? host : "[" + host + "]",
                       port)),
      prefix_(prefix.empty() ? "/" : fmt::format("/{}/", prefix)),
      description_(fmt::format("etcd {}:{}", host, port)),
      timeout_(timeout) {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  curl_ = ready ? curl_easy_init() : nullptr;
  if (!curl_) throw CommError("store {}: libcurl does not start", description_);
  try {
    try_get("");
  } catch (...) {
    curl_easy_cleanup(curl_);
    throw;
  }
}

EtcdKeyStore::~EtcdKeyStore() { curl_easy_cleanup(curl_); }

json EtcdKeyStore::ask(const std::string& path, const json& request) {
  std::lock_guard lock(mutex_);
  const std::string url = url_ + path, body = request.dump();
  std::string answer;
  char problem[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl_, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl_, CURLOPT_POSTFIELDS, body.c_str());
  curl_easy_setopt(curl_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl_, CURLOPT_WRITEFUNCTION, append);
  curl_easy_setopt(curl_, CURLOPT_WRITEDATA, &answer);
  curl_easy_setopt(curl_, CURLOPT_ERRORBUFFER, problem);
  curl_easy_setopt(curl_, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout_.count()));
  curl_easy_setopt(curl_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl_, CURLOPT_NOPROXY, "*");
  const CURLcode status = curl_easy_perform(curl_);
  if (status != CURLE_OK) {
    throw CommError("store {}: cannot be reached: {}; is etcd running there?", description_,
                    *problem ? problem : curl_easy_strerror(status));
  }
  const json reply = json::parse(answer, nullptr, false);
  if (!reply.is_object())
    throw CommError("store {}: expected an answer in JSON, found '{}'; is etcd running there?", description_,
                    answer.substr(0, 80));
  if (reply.contains("error")) throw CommError("store {}: {}", description_, reply["error"].dump());
  return reply;
}

std::string EtcdKeyStore::encoded_key(const std::string& key) const { return to_base64(prefix_ + key); }

void EtcdKeyStore::set(const std::string& key, const std::string& value) {
  ask("put", {{"key", encoded_key(key)}, {"value", to_base64(value)}});
}

std::optional<std::string> EtcdKeyStore::try_get(const std::string& key) {
  return first_value(ask("range", {{"key", encoded_key(key)}}));
}

std::string EtcdKeyStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  return poll_for_key(*this, key, timeout);
}

std::string EtcdKeyStore::set_if_missing(const std::string& key, const std::string& value) {
  const std::string name = encoded_key(key);
  const json reply =
      ask("txn", {{"compare", {{{"key", name}, {"target", "CREATE"}, {"create_revision", "0"}}}},
                  {"success", {{{"request_put", {{"key", name}, {"value", to_base64(value)}}}}}},
                  {"failure", {{{"request_range", {{"key", name}}}}}}});
  if (reply.value("succeeded", false)) return value;
  return first_value(reply.at("responses").at(0).at("response_range")).value_or("");
}

// Compare and swap until nobody came in between.
int64_t EtcdKeyStore::add(const std::string& key, int64_t amount) {
  const std::string name = encoded_key(key);
  for (;;) {
    const json present = ask("range", {{"key", name}});
    const std::string text = first_value(present).value_or("0");
    const std::string revision = text == "0" && !present.contains("kvs")
                                     ? "0"
                                     : present["kvs"][0].at("mod_revision").get<std::string>();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      throw CommError("store {}: key '{}' holds no number: '{}'", description_, key, text);
    }
    value += amount;
    const json reply =
        ask("txn",
            {{"compare", {{{"key", name}, {"target", "MOD"}, {"mod_revision", revision}}}},
             {"success", {{{"request_put", {{"key", name}, {"value", to_base64(std::to_string(value))}}}}}}});
    if (reply.value("succeeded", false)) return value;
  }
}

void EtcdKeyStore::remove(const std::string& key) { ask("deleterange", {{"key", encoded_key(key)}}); }

}  // namespace tandem
