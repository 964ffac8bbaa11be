#include "tandem/http/client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tandem::http {
namespace {

size_t keep(char* data, size_t size, size_t count, void* user) {
  auto& body = *static_cast<std::string*>(user);
  body.append(data, std::min(size * count, kMostAnswer - body.size()));
  return size * count;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return (*static_cast<const std::function<bool()>*>(user))() ? 1 : 0;
}

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

void set_options(CURL* call, const ClientOptions& options) {
  curl_easy_setopt(call, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(call, CURLOPT_USERAGENT, "tandem");
  curl_easy_setopt(call, CURLOPT_NOSIGNAL, 1L);
  if (!options.user_password.empty()) {
    curl_easy_setopt(call, CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BASIC));
    curl_easy_setopt(call, CURLOPT_USERPWD, options.user_password.c_str());
  }
  if (options.given_up) {
    curl_easy_setopt(call, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(call, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(call, CURLOPT_XFERINFODATA, &options.given_up);
  }
}

}  // namespace

Client::Client(ClientOptions options) : options_(std::move(options)) {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  handle_ = ready ? curl_easy_init() : nullptr;
}

Client::~Client() {
  if (handle_ != nullptr) curl_easy_cleanup(handle_);
}

Answer Client::post_json(const std::string& url, const std::string& body, std::chrono::milliseconds limit) {
  Answer answer;
  std::unique_ptr<curl_slist, FreeList> headers(curl_slist_append(nullptr, "Content-Type: application/json"));
  if (handle_ == nullptr || !headers || curl_slist_append(headers.get(), "Expect:") == nullptr) {
    answer.trouble = "libcurl does not start";
    return answer;
  }
  char problem[CURL_ERROR_SIZE] = "";
  CURL* call = handle_;
  curl_easy_reset(call);  // keeps its connections
  set_options(call, options_);
  curl_easy_setopt(call, CURLOPT_URL, url.c_str());
  curl_easy_setopt(call, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(call, CURLOPT_POSTFIELDS, body.c_str());
  curl_easy_setopt(call, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(call, CURLOPT_WRITEFUNCTION, keep);
  curl_easy_setopt(call, CURLOPT_WRITEDATA, &answer.body);
  curl_easy_setopt(call, CURLOPT_ERRORBUFFER, problem);
  curl_easy_setopt(call, CURLOPT_TIMEOUT_MS, std::max(1L, static_cast<long>(limit.count())));
  const CURLcode sent = curl_easy_perform(call);
  curl_easy_setopt(call, CURLOPT_ERRORBUFFER, nullptr);  // it is gone when this returns
  if (sent != CURLE_OK) {
    answer.trouble = *problem != 0 ? problem : curl_easy_strerror(sent);
    return answer;
  }
  long status = 0;
  curl_easy_getinfo(call, CURLINFO_RESPONSE_CODE, &status);
  answer.status = static_cast<int>(status);
  if (status < 200 || status >= 300) answer.trouble = fmt::format("it answers with status {}", status);
  return answer;
}

}  // namespace tandem::http
