#include "tandem/cluster/kubernetes_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include "tandem/base/error.h"
#include "tandem/base/json_text.h"
#include "tandem/base/utf8.h"

namespace tandem::cluster {
namespace {

constexpr size_t kMostAnswer = size_t{32} << 20;
constexpr long kConnect_s = 15, kCall_s = 60;

struct Transfer {
  CURL* handle;
  std::string body;
  const std::function<bool(std::string_view)>* take;
  bool stopped = false;
};

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view bytes(data, size * count);
  long status = 0;
  curl_easy_getinfo(transfer.handle, CURLINFO_RESPONSE_CODE, &status);
  if (transfer.take != nullptr && status == 200) {
    transfer.stopped = !(*transfer.take)(bytes);
    return transfer.stopped ? 0 : bytes.size();
  }
  if (transfer.body.size() + bytes.size() > kMostAnswer) return 0;
  transfer.body += bytes;
  return bytes.size();
}

class Headers {
 public:
  ~Headers() { curl_slist_free_all(list_); }
  void add(const std::string& line) {
    curl_slist* longer = curl_slist_append(list_, line.c_str());
    if (longer == nullptr) throw IoError("libcurl: out of memory");
    list_ = longer;
  }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

void set_text(CURL* handle, CURLoption option, const std::string& pem) {
  if (pem.empty()) return;
  curl_blob blob{const_cast<char*>(pem.data()), pem.size(), CURL_BLOB_COPY};
  curl_easy_setopt(handle, option, &blob);
}

void set_identity(CURL* handle, const KubernetesAccess& access) {
  set_text(handle, CURLOPT_CAINFO_BLOB, access.authority);
  set_text(handle, CURLOPT_SSLCERT_BLOB, access.certificate);
  set_text(handle, CURLOPT_SSLKEY_BLOB, access.key);
  curl_easy_setopt(handle, CURLOPT_SSLCERTTYPE, "PEM");
  curl_easy_setopt(handle, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "https");
  curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  if (access.any_server) {
    curl_easy_setopt(handle, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(handle, CURLOPT_SSL_VERIFYHOST, 0L);
  }
  if (!access.proxy.empty()) curl_easy_setopt(handle, CURLOPT_PROXY, access.proxy.c_str());
}

}  // namespace

std::string KubernetesClient::Answer::message() const {
  std::string text = body.is_object() ? body.value("message", "") : "";
  if (text.empty()) text = fmt::format("status {}", status);
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return printable(text);
}

KubernetesClient::KubernetesClient(KubernetesAccess access)
    : access_(std::move(access)), curl_(curl_easy_init()) {
  if (curl_ == nullptr) throw IoError("libcurl: cannot be used");
}

KubernetesClient::~KubernetesClient() { curl_easy_cleanup(static_cast<CURL*>(curl_)); }

KubernetesClient::Answer KubernetesClient::send(const std::string& method, const std::string& path,
                                                const std::string& body, const char* type,
                                                const std::function<bool(std::string_view)>* take) {
  auto* handle = static_cast<CURL*>(curl_);
  curl_easy_reset(handle);  // keeps its connections
  const std::string url = access_.server + path;
  Transfer transfer{handle, "", take};
  Headers headers;
  headers.add("Accept: application/json");
  headers.add("Expect:");
  if (!access_.token.empty()) headers.add("Authorization: Bearer " + access_.token);
  if (!body.empty()) headers.add(fmt::format("Content-Type: {}", type));
  set_identity(handle, access_);
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, method.c_str());
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "tandem");
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, kConnect_s);
  curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  if (take == nullptr) curl_easy_setopt(handle, CURLOPT_TIMEOUT, kCall_s);
  if (!body.empty()) {
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, body.data());
  }
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
  char problem[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, problem);
  const CURLcode code = curl_easy_perform(handle);
  Answer answer;
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  answer.status = static_cast<int>(status);
  const bool cut = take != nullptr && status == 200;  // a stream may end in any way
  if (code != CURLE_OK && !transfer.stopped && !cut)
    throw IoError("{}: {}", access_.server, *problem != '\0' ? problem : curl_easy_strerror(code));
  if (!transfer.body.empty()) {
    check_json_depth(transfer.body, access_.server);
    answer.body = Json::parse(transfer.body, nullptr, false);
  }
  if (answer.status == 401)
    throw ConfigError("{}: does not know who asks ({}); get credentials anew", access_.server,
                      answer.message());
  return answer;
}

KubernetesClient::Answer KubernetesClient::create(const std::string& path, const Json& object) {
  return send("POST", path, object.dump(), "application/json");
}

KubernetesClient::Answer KubernetesClient::merge(const std::string& path, const Json& changes) {
  return send("PATCH", path, changes.dump(), "application/merge-patch+json");
}

KubernetesClient::Answer KubernetesClient::remove(const std::string& path, const Json& options) {
  return send("DELETE", path, options.dump(), "application/json");
}

KubernetesClient::Answer KubernetesClient::stream(const std::string& path,
                                                  const std::function<bool(std::string_view)>& take) {
  return send("GET", path, "", "", &take);
}

void KubernetesClient::refuse(const std::string& what, const Answer& answer) const {
  if (answer.status == 403 || answer.status == 409 || answer.status == 422 || answer.status == 400)
    throw ConfigError("{}: the cluster refuses: {}", what, answer.message());
  throw IoError("{}: {} answered: {}", what, access_.server, answer.message());
}

}  // namespace tandem::cluster
