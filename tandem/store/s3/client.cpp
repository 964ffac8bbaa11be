#include "tandem/store/s3/client.h"

#include <curl/curl.h>

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/store/s3/answers.h"

namespace tandem::s3 {
namespace {

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// Signs that a call may do better when it is made again.
bool is_passing(int status, std::string_view code) {
  return status == 0 || status == 408 || status == 429 || (status >= 500 && status != 501) ||
         is_one_of(code, {"RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable", "Throttling",
                          "OperationAborted", "ConditionalRequestConflict", "BadDigest",
                          "XAmzContentSHA256Mismatch", "IncompleteBody"});
}

// A good answer may still be an error: S3 begins to answer a long call before it knows how it ends.
std::string code_in(const Answer& answer) {
  if (answer.body.find("<Error") == std::string::npos) return {};
  const auto error = parse_error(answer.body);
  return error ? (error->code.empty() ? "unknown" : error->code) : std::string();
}

}  // namespace

Client::Client(Place place, Environment environment, TimeLimits limits, Retries retries)
    : place_(std::move(place)),
      environment_(environment),
      credentials_(std::move(environment), place_.region),
      http_(limits, &given_up_),
      retries_(retries),
      region_(place_.region) {}

std::string Client::address(const std::string& name) const {
  const std::string key = name.empty() ? place_.prefix : place_.key(name);
  return fmt::format("{}{}{}{}", kScheme, place_.bucket, key.empty() ? "" : "/", key);
}

Request Client::make_request(const Call& call, const KeyPair& keys) {
  Place place = place_;
  {
    const std::lock_guard lock(mutex_);
    if (place.region != region_ && !place.own_endpoint)
      place.host = fmt::format("s3.{}.amazonaws.com", region_);
    place.region = region_;
  }
  Request request = place.request_for(call.whole_bucket ? "" : place.key(call.name));
  request.method = call.method;
  request.query = call.query;
  request.headers = call.headers;
  request.body = call.body;
  sign(request, keys, {place.region, "s3"},
       static_cast<std::time_t>(environment_.now() + clock_ahead_.load()));
  return request;
}

Client::Verdict Client::judge(const Answer& answer, std::initializer_list<int> accepted, const KeyPair& keys,
                              bool& has_renewed) {
  const std::string code = code_in(answer);
  if (answer.good() && code.empty()) return Verdict::Good;
  if (is_one_of(code, {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"}))
    return credentials_.renew(keys) ? Verdict::AgainAtOnce : Verdict::Failed;
  // A HEAD has no body that says why. Keys that were lent may have ended: new ones are worth one try.
  if ((answer.status == 400 || answer.status == 403) && answer.body.empty() && !keys.session.empty() &&
      !std::exchange(has_renewed, true) && credentials_.renew(keys))
    return Verdict::AgainAtOnce;
  if (code == "RequestTimeTooSkewed") {
    const std::time_t theirs = curl_getdate(answer.header("date").c_str(), nullptr);
    if (theirs > 0) clock_ahead_.store(static_cast<int64_t>(theirs) - environment_.now());
    return theirs > 0 ? Verdict::Again : Verdict::Failed;
  }
  const std::string region = answer.header("x-amz-bucket-region");
  if (!region.empty() && (answer.status == 301 || answer.status == 307 || answer.status == 400)) {
    const std::lock_guard lock(mutex_);
    if (region != region_) {
      region_ = region;
      return Verdict::AgainAtOnce;
    }
  }
  if (is_passing(answer.status, code) || (answer.good() && code != "NoSuchUpload")) return Verdict::Again;
  if (std::find(accepted.begin(), accepted.end(), answer.status) != accepted.end()) return Verdict::Good;
  return Verdict::Failed;
}

// Of random length, so that many ranks that were refused at the same time do not come back at the same time.
void Client::pause(int attempt) const {
  thread_local std::minstd_rand random(std::random_device{}());
  const auto most = std::min(retries_.longest, retries_.first * (1 << std::min(attempt, 20)));
  auto left = std::chrono::milliseconds(
      std::uniform_int_distribution<int64_t>(most.count() / 4, most.count())(random));
  constexpr std::chrono::milliseconds kNap(50);
  for (; left.count() > 0 && !given_up_.load(); left -= kNap)
    std::this_thread::sleep_for(std::min(left, kNap));
}

std::string Client::explain(const Call& call, const Answer& answer, int attempts) const {
  std::string reason = answer.trouble;
  if (answer.status != 0) {
    const auto error = parse_error(answer.body);
    reason = fmt::format("status {}", answer.status);
    if (error)
      reason += fmt::format(", {}{}{}", error->code, error->message.empty() ? "" : ": ", error->message);
  }
  if (answer.status == 403 && answer.body.empty()) reason += ", not allowed";
  const std::string tries = attempts > 1 ? fmt::format(" (tried {} times)", attempts) : "";
  return fmt::format("{}: cannot {}: {}{}", address(call.name), call.what, reason, tries);
}

Answer Client::call(const Call& call, std::initializer_list<int> accepted,
                    std::optional<std::span<std::byte>> into) {
  bool has_renewed = false;
  for (int attempt = 1;; ++attempt) {
    const KeyPair keys = credentials_.keys();
    Answer answer = http_.send(make_request(call, keys), into);
    const Verdict verdict = judge(answer, accepted, keys, has_renewed);
    if (verdict == Verdict::Good) return answer;
    if (verdict == Verdict::Failed || attempt >= retries_.most || given_up_.load())
      throw IoError("{}", explain(call, answer, attempt));
    if (verdict == Verdict::Again) pause(attempt - 1);
  }
}

}  // namespace tandem::s3
