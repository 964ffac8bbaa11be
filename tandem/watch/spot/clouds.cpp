#include "tandem/watch/spot/clouds.h"

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/store/s3/http.h"

namespace tandem::spot {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr s3::TimeLimits kLimits{.connect = milliseconds(1000), .silence = seconds(5), .call = seconds(10)};
constexpr s3::TimeLimits kAzureLimits{
    .connect = milliseconds(1000), .silence = seconds(120), .call = seconds(130)};

class MetadataServer {
 public:
  MetadataServer(const std::string& endpoint, const std::string& own_host, const std::atomic<bool>* given_up,
                 const s3::TimeLimits& limits = kLimits)
      : http_(limits, given_up) {
    const std::string url = endpoint.empty() ? "http://" + own_host : endpoint;
    const size_t scheme = url.find("://");
    request_.scheme = url.substr(0, scheme);
    request_.host = url.substr(scheme + 3);
    while (request_.host.ends_with('/')) request_.host.pop_back();
  }

  s3::Answer get(const std::string& path, const std::map<std::string, std::string>& headers,
                 const std::map<std::string, std::string>& query = {},
                 const std::string& method = "GET") const {
    s3::Request request = request_;
    request.method = method;
    request.path = path;
    request.query = query;
    request.headers = headers;
    return http_.send(request);
  }

 private:
  s3::Http http_;
  s3::Request request_;
};

// The body of a good answer. Throws IoError.
std::string body_of(const s3::Answer& answer, std::string_view cloud) {
  if (answer.good()) return answer.body;
  throw IoError("{}: the metadata server {}", cloud,
                answer.status == 0 ? "does not answer: " + answer.trouble
                                   : fmt::format("answers with {}", answer.status));
}

// IMDSv2: a token first, which every question shows.
class Aws : public Source {
 public:
  Aws(const std::string& endpoint, const std::atomic<bool>* given_up)
      : server_(endpoint, "169.254.169.254", given_up) {}
  std::string_view name() const override { return "aws"; }
  milliseconds interval() const override { return seconds(5); }
  bool answers() override { return fetch_token().good(); }

  std::optional<Notice> ask() override {
    s3::Answer answer = question();
    if (answer.status == 401) {  // the token has ended
      token_.clear();
      answer = question();
    }
    if (answer.status == 404) return std::nullopt;  // nothing is decided
    return parse_aws_action(body_of(answer, "AWS"));
  }

 private:
  s3::Answer fetch_token() {
    s3::Answer answer =
        server_.get("/latest/api/token", {{"x-aws-ec2-metadata-token-ttl-seconds", "21600"}}, {}, "PUT");
    if (answer.good()) token_ = answer.body;
    return answer;
  }
  s3::Answer question() {
    if (token_.empty()) body_of(fetch_token(), "AWS");
    return server_.get("/latest/meta-data/spot/instance-action", {{"x-aws-ec2-metadata-token", token_}});
  }

  MetadataServer server_;
  std::string token_;
};

class Gcp : public Source {
 public:
  Gcp(const std::string& endpoint, const std::atomic<bool>* given_up)
      : server_(endpoint, "metadata.google.internal", given_up) {}
  std::string_view name() const override { return "gcp"; }
  milliseconds interval() const override { return seconds(1); }
  bool answers() override { return question().good(); }
  std::optional<Notice> ask() override {
    return parse_gcp_preempted(body_of(question(), "Google"), unix_s());
  }

 private:
  s3::Answer question() {
    return server_.get("/computeMetadata/v1/instance/preempted", {{"metadata-flavor", "Google"}});
  }
  MetadataServer server_;
};

// The first question switches the service on, and may take two minutes.
class Azure : public Source {
 public:
  Azure(const std::string& endpoint, const std::atomic<bool>* given_up)
      : server_(endpoint, "169.254.169.254", given_up, kAzureLimits) {}
  std::string_view name() const override { return "azure"; }
  milliseconds interval() const override { return seconds(1); }
  bool answers() override { return fetch_name().good(); }

  std::optional<Notice> ask() override {
    if (own_name_.empty()) body_of(fetch_name(), "Azure");
    const s3::Answer answer =
        server_.get("/metadata/scheduledevents", {{"metadata", "true"}}, {{"api-version", "2020-07-01"}});
    return parse_azure_events(body_of(answer, "Azure"), own_name_, unix_s());
  }

 private:
  s3::Answer fetch_name() {
    s3::Answer answer = server_.get("/metadata/instance/compute/name", {{"metadata", "true"}},
                                    {{"api-version", "2021-02-01"}, {"format", "text"}});
    if (answer.good()) own_name_ = answer.body;
    return answer;
  }
  MetadataServer server_;
  std::string own_name_;
};

}  // namespace

std::unique_ptr<Source> make_source(SpotWatch cloud, const std::string& endpoint,
                                    const std::atomic<bool>* given_up) {
  switch (cloud) {
    case SpotWatch::Aws: return std::make_unique<Aws>(endpoint, given_up);
    case SpotWatch::Gcp: return std::make_unique<Gcp>(endpoint, given_up);
    case SpotWatch::Azure: return std::make_unique<Azure>(endpoint, given_up);
    case SpotWatch::None:
    case SpotWatch::Auto: break;
  }
  throw std::logic_error("make_source: not a cloud");
}

}  // namespace tandem::spot
