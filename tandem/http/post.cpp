#include "tandem/http/post.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <memory>

namespace tandem::http {
namespace {

size_t forget(char*, size_t size, size_t count, void*) { return size * count; }

struct Close {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

}  // namespace

std::string post_json(const std::string& url, const std::string& body, std::chrono::milliseconds limit) {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  const std::unique_ptr<CURL, Close> handle(ready ? curl_easy_init() : nullptr);
  const std::unique_ptr<curl_slist, Close> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"));
  if (!handle || !headers) return "libcurl does not start";
  char problem[CURL_ERROR_SIZE] = "";
  CURL* call = handle.get();
  curl_easy_setopt(call, CURLOPT_URL, url.c_str());
  curl_easy_setopt(call, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(call, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(call, CURLOPT_POSTFIELDS, body.c_str());
  curl_easy_setopt(call, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(call, CURLOPT_USERAGENT, "tandem");
  curl_easy_setopt(call, CURLOPT_WRITEFUNCTION, forget);
  curl_easy_setopt(call, CURLOPT_ERRORBUFFER, problem);
  curl_easy_setopt(call, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(call, CURLOPT_TIMEOUT_MS, static_cast<long>(limit.count()));
  const CURLcode sent = curl_easy_perform(call);
  if (sent != CURLE_OK) return *problem != 0 ? problem : curl_easy_strerror(sent);
  long status = 0;
  curl_easy_getinfo(call, CURLINFO_RESPONSE_CODE, &status);
  return status >= 200 && status < 300 ? "" : fmt::format("it answers with status {}", status);
}

}  // namespace tandem::http
