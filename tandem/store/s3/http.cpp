#include "tandem/store/s3/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem::s3 {
namespace {

constexpr size_t kMostIdle = 64;
constexpr int64_t kSlowestBytes = int64_t{64} << 10;  // a second

// What libcurl's callbacks fill while a call is under way.
struct Transfer {
  CURL* handle = nullptr;
  std::span<const std::byte> unsent;
  Answer answer;
  std::optional<std::span<std::byte>> into;
  size_t received = 0;
  size_t header_bytes = 0;
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return result;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() &&
         (text.back() == ' ' || text.back() == '\t' || text.back() == '\r' || text.back() == '\n'))
    text.remove_suffix(1);
  return text;
}

size_t on_header(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(data, size * count);
  transfer.header_bytes += line.size();
  if (transfer.header_bytes > kMostHeaders) return 0;
  if (line.starts_with("HTTP/")) transfer.answer.headers.clear();  // of a "100 Continue" before it
  if (const size_t colon = line.find(':'); colon != std::string_view::npos)
    transfer.answer.headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  return line.size();
}

bool is_good(CURL* handle) {
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  return status >= 200 && status < 300;
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const size_t bytes = size * count;
  if (transfer.into && is_good(transfer.handle)) {
    if (bytes > transfer.into->size() - transfer.received) {
      transfer.answer.trouble = "the answer has more bytes than were asked for";
      return 0;
    }
    std::memcpy(transfer.into->data() + transfer.received, data, bytes);
    transfer.received += bytes;
    return bytes;
  }
  if (transfer.answer.body.size() + bytes > kMostAnswer) {
    transfer.answer.trouble = "the answer is longer than any that is expected";
    return 0;
  }
  transfer.answer.body.append(data, bytes);
  return bytes;
}

size_t on_send(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const size_t bytes = std::min(size * count, transfer.unsent.size());
  if (bytes > 0) std::memcpy(data, transfer.unsent.data(), bytes);
  transfer.unsent = transfer.unsent.subspan(bytes);
  return bytes;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::atomic<bool>*>(user)->load() ? 1 : 0;
}

// Who is on this machine, or answers for it alone, is not asked through a proxy.
std::string without_proxy() {
  std::string hosts = "localhost,127.0.0.1,::1,169.254.169.254,169.254.170.2,169.254.170.23";
  for (const char* name : {"no_proxy", "NO_PROXY"}) {
    const char* more = std::getenv(name);
    if (more == nullptr) continue;
    return std::string_view(more) == "*" ? "*" : hosts + "," + more;
  }
  return hosts;
}

class HeaderList {
 public:
  explicit HeaderList(const Request& request) {
    for (const auto& [name, value] : request.headers) add(fmt::format("{}: {}", name, value));
    add("Expect:");  // no round trip before each body
    if (request.body.empty()) add("Content-Type:");
    if (request.method == "PUT" && !request.headers.contains("content-type")) add("Content-Type:");
  }
  ~HeaderList() { curl_slist_free_all(list_); }
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  curl_slist* get() const { return list_; }

 private:
  void add(const std::string& line) {
    curl_slist* longer = curl_slist_append(list_, line.c_str());
    if (longer == nullptr) throw IoError("libcurl: out of memory");
    list_ = longer;
  }
  curl_slist* list_ = nullptr;
};

void set_method(CURL* handle, const Request& request) {
  if (request.method == "HEAD") {
    curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
  } else if (request.method == "PUT" || request.method == "POST") {
    curl_easy_setopt(handle, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  } else if (request.method != "GET") {
    curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
}

void set_limits(CURL* handle, const TimeLimits& limits, size_t bytes) {
  const auto extra = std::chrono::seconds(static_cast<int64_t>(bytes) / kSlowestBytes);
  const auto silence = std::chrono::duration_cast<std::chrono::seconds>(limits.silence).count();
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits.connect.count()));
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(silence)));
  curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS,
                   static_cast<long>((limits.call + std::chrono::milliseconds(extra)).count()));
}

}  // namespace

std::string Answer::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found != headers.end() ? found->second : std::string();
}

Http::~Http() {
  for (void* handle : idle_) curl_easy_cleanup(handle);
}

void* Http::take() const {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  const std::lock_guard lock(mutex_);
  if (!idle_.empty()) {
    void* handle = idle_.back();
    idle_.pop_back();
    return handle;
  }
  CURL* handle = ready ? curl_easy_init() : nullptr;
  if (handle == nullptr) throw IoError("libcurl does not start");
  return handle;
}

void Http::put_back(void* handle) const {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMostIdle) {
    idle_.push_back(handle);
  } else {
    curl_easy_cleanup(handle);
  }
}

Answer Http::send(const Request& request, std::optional<std::span<std::byte>> into) const {
  const HeaderList headers(request);
  CURL* handle = take();
  curl_easy_reset(handle);  // keeps its connections
  Transfer transfer{handle, request.body, {}, into, 0, 0};
  char problem[CURL_ERROR_SIZE] = "";
  const std::string url = request.url(), no_proxy = without_proxy();
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(handle, CURLOPT_NOPROXY, no_proxy.c_str());
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, problem);
  curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, 256L << 10);
  curl_easy_setopt(handle, CURLOPT_UPLOAD_BUFFERSIZE, 128L << 10);
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_READFUNCTION, on_send);
  curl_easy_setopt(handle, CURLOPT_READDATA, &transfer);
  if (given_up_ != nullptr) {
    curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(handle, CURLOPT_XFERINFODATA, const_cast<std::atomic<bool>*>(given_up_));
  }
  set_method(handle, request);
  set_limits(handle, limits_, request.body.size() + (into ? into->size() : 0));
  const CURLcode status = curl_easy_perform(handle);
  Answer& answer = transfer.answer;
  if (status != CURLE_OK) {
    if (answer.trouble.empty()) answer.trouble = *problem != 0 ? problem : curl_easy_strerror(status);
    curl_easy_cleanup(handle);  // nobody knows what its connections are good for
    return std::move(answer);
  }
  long code = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &code);
  put_back(handle);
  if (into && code >= 200 && code < 300 && transfer.received != into->size()) {
    answer.trouble = fmt::format("the answer has {} bytes instead of {}", transfer.received, into->size());
    return std::move(answer);
  }
  answer.status = static_cast<int>(code);
  return std::move(answer);
}

}  // namespace tandem::s3
