#include "tandem/store/s3/credentials.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/store/s3/answers.h"
#include "tandem/store/s3/xml.h"

namespace tandem::s3 {
namespace {

constexpr int64_t kBeforeEnd = 300;  // seconds: keys are fetched anew so long before they end
constexpr const char* kContainerHost = "169.254.170.2";
constexpr const char* kMachineHost = "169.254.169.254";
constexpr int64_t kMostFile = int64_t{1} << 20;

// Those who lend keys are near: whoever does not answer soon is not there.
constexpr TimeLimits kNear{std::chrono::milliseconds(1000), std::chrono::seconds(5), std::chrono::seconds(5)};

struct Url {
  std::string scheme, host, path;
};

Url split_url(const std::string& url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string::npos) throw DataError("not a URL");
  const size_t path = url.find('/', scheme + 3);
  return {url.substr(0, scheme), url.substr(scheme + 3, std::min(path, url.size()) - scheme - 3),
          path == std::string::npos ? "/" : url.substr(path)};
}

// A path may have a query of its own, which stays as it is.
Request request_to(const Url& url) {
  Request request;
  request.scheme = url.scheme;
  request.host = url.host;
  request.path = url.path;
  return request;
}

bool is_own_host(const std::string& host) {
  const std::string name =
      host.starts_with("[") ? host.substr(0, host.find(']') + 1) : host.substr(0, host.find(':'));
  return name == "localhost" || name == "[::1]" || name.starts_with("127.") || name == kContainerHost ||
         name == "169.254.170.23" || name == "[fd00:ec2::23]";
}

std::string without_end_of_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

Environment this_environment() {
  return {[](const std::string& name) {
            const char* value = std::getenv(name.c_str());
            return std::string(value != nullptr ? value : "");
          },
          [](const std::string& path) -> std::optional<std::string> {
            if (!is_there(path)) return std::nullopt;
            return read_text(std::filesystem::path(path), kMostFile);
          },
          [] { return static_cast<int64_t>(std::time(nullptr)); }};
}

std::string home_file(const Environment& environment, const std::string& variable,
                      const std::string& below_home) {
  const std::string named = environment.variable(variable);
  return named.empty() ? environment.variable("HOME") + "/" + below_home : named;
}

std::map<std::string, std::string> read_profile(const Environment& environment) {
  std::string name = environment.variable("AWS_PROFILE");
  const bool asked = !name.empty();
  if (!asked) name = "default";
  std::map<std::string, std::string> keys;
  bool found = false;
  const auto add = [&](const std::string& path, const std::string& section) {
    const std::optional<std::string> text = environment.file(path);
    if (!text) return;
    const IniFile file = parse_ini(*text);
    const auto profile = file.find(section);
    if (profile == file.end()) return;
    found = true;
    for (const auto& [key, value] : profile->second) keys[key] = value;
  };
  const std::string config = home_file(environment, "AWS_CONFIG_FILE", ".aws/config");
  add(config, name == "default" ? name : "profile " + name);
  add(home_file(environment, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"), name);
  if (asked && !found) {
    throw ConfigError("AWS_PROFILE: no profile '{}' in {} or the credentials file beside it", name, config);
  }
  return keys;
}

LentKeys parse_role_keys(const std::string& body, const std::string& source) {
  const nlohmann::json answer = nlohmann::json::parse(body, nullptr, false);
  const auto text = [&](const char* key) {
    return answer.is_object() && answer.contains(key) && answer[key].is_string()
               ? answer[key].get<std::string>()
               : std::string();
  };
  LentKeys lent{{text("AccessKeyId"), text("SecretAccessKey"), text("Token")}, 0, source};
  const std::optional<int64_t> ends = parse_time(text("Expiration"));
  if (lent.keys.id.empty() || lent.keys.secret.empty() || !ends)
    throw DataError("{} gave no keys in its answer", source);
  lent.ends = *ends;
  return lent;
}

LentKeys parse_web_identity(const std::string& body) {
  const XmlElement root = parse_xml(body);
  const XmlElement* result = root.find("AssumeRoleWithWebIdentityResult");
  const XmlElement* found = result != nullptr ? result->find("Credentials") : nullptr;
  LentKeys lent;
  lent.source = "the web identity of AWS_ROLE_ARN";
  if (found != nullptr) {
    lent.keys = {found->text_of("AccessKeyId"), found->text_of("SecretAccessKey"),
                 found->text_of("SessionToken")};
    lent.ends = parse_time(found->text_of("Expiration")).value_or(0);
  }
  if (lent.keys.id.empty() || lent.keys.secret.empty() || lent.ends == 0)
    throw DataError("{}: STS gave no keys in its answer", lent.source);
  return lent;
}

Credentials::Credentials(Environment environment, std::string region)
    : environment_(std::move(environment)), region_(std::move(region)), http_(kNear) {}

KeyPair Credentials::keys() {
  const std::lock_guard lock(mutex_);
  if (!lent_ || (lent_->ends != 0 && environment_.now() >= lent_->ends - kBeforeEnd)) {
    try {
      lent_ = fetch();
    } catch (const Error&) {
      // Whoever lends them is away for the moment: what is there may still be good for minutes.
      if (!lent_ || environment_.now() >= lent_->ends) throw;
    }
  }
  return lent_->keys;
}

bool Credentials::renew(const KeyPair& refused) {
  const std::lock_guard lock(mutex_);
  if (!lent_) return true;
  if (lent_->keys.id != refused.id || lent_->keys.session != refused.session) return true;
  if (lent_->ends == 0) return false;
  lent_.reset();
  return true;
}

LentKeys Credentials::fetch() {
  using Source = std::optional<LentKeys> (Credentials::*)() const;
  for (const Source source :
       {&Credentials::from_variables, &Credentials::from_web_identity, &Credentials::from_profile,
        &Credentials::from_container, &Credentials::from_machine}) {
    if (auto lent = (this->*source)()) return std::move(*lent);
  }
  throw IoError(
      "S3: no credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE with a "
      "profile of ~/.aws/credentials, or give the machine a role");
}

std::optional<LentKeys> Credentials::from_variables() const {
  const auto variable = [&](const char* name) { return environment_.variable(name); };
  LentKeys lent{
      {variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"), variable("AWS_SESSION_TOKEN")},
      0,
      "the environment"};
  if (lent.keys.id.empty() && lent.keys.secret.empty()) return std::nullopt;
  if (lent.keys.id.empty() || lent.keys.secret.empty()) {
    throw ConfigError("{}: is not set, though its partner is; S3 needs both",
                      lent.keys.id.empty() ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY");
  }
  return lent;
}

std::optional<LentKeys> Credentials::from_web_identity() const {
  const std::string path = environment_.variable("AWS_WEB_IDENTITY_TOKEN_FILE");
  const std::string role = environment_.variable("AWS_ROLE_ARN");
  if (path.empty() || role.empty()) return std::nullopt;
  const std::optional<std::string> token = environment_.file(path);
  if (!token) throw IoError("AWS_WEB_IDENTITY_TOKEN_FILE: {}: no such file", path);
  std::string name = environment_.variable("AWS_ROLE_SESSION_NAME");
  if (name.empty()) name = "tandem";
  const std::string endpoint = environment_.variable("AWS_ENDPOINT_URL_STS");
  Request request = request_to(
      split_url(endpoint.empty() ? fmt::format("https://sts.{}.amazonaws.com/", region_) : endpoint));
  request.method = "POST";
  request.headers["content-type"] = "application/x-www-form-urlencoded";
  const std::string form = query_text({{"Action", "AssumeRoleWithWebIdentity"},
                                       {"Version", "2011-06-15"},
                                       {"RoleArn", role},
                                       {"RoleSessionName", name},
                                       {"WebIdentityToken", without_end_of_line(*token)}});
  request.body = std::as_bytes(std::span(form));
  const Answer answer = http_.send(request);
  if (!answer.good()) {
    const auto error = parse_error(answer.body);
    throw IoError("AWS_ROLE_ARN: STS lends no keys: {}", error ? error->code
                                                         : answer.status == 0
                                                             ? answer.trouble
                                                             : fmt::format("status {}", answer.status));
  }
  return parse_web_identity(answer.body);
}

std::optional<LentKeys> Credentials::from_profile() const {
  const auto profile = read_profile(environment_);
  const auto value = [&](const char* key) {
    const auto found = profile.find(key);
    return found != profile.end() ? found->second : std::string();
  };
  LentKeys lent{{value("aws_access_key_id"), value("aws_secret_access_key"), value("aws_session_token")},
                0,
                "a profile"};
  if (!lent.keys.id.empty() && !lent.keys.secret.empty()) return lent;
  if (!environment_.variable("AWS_PROFILE").empty()) {
    throw ConfigError(
        "AWS_PROFILE: the profile '{}' has no aws_access_key_id and aws_secret_access_key, which are all "
        "that "
        "is read of it",
        environment_.variable("AWS_PROFILE"));
  }
  return std::nullopt;
}

std::optional<LentKeys> Credentials::from_container() const {
  const std::string relative = environment_.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string full = environment_.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (relative.empty() && full.empty()) return std::nullopt;
  const Url url = relative.empty() ? split_url(full) : Url{"http", kContainerHost, relative};
  if (url.scheme != "https" && !is_own_host(url.host))
    throw ConfigError("AWS_CONTAINER_CREDENTIALS_FULL_URI: expected https, or a host of this machine");
  Request request = request_to(url);
  std::string token = environment_.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string token_file = environment_.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!token_file.empty()) token = environment_.file(token_file).value_or("");
  if (!token.empty()) request.headers["authorization"] = without_end_of_line(token);
  const Answer answer = http_.send(request);
  if (!answer.good()) {
    throw IoError("S3: the container's role gives no keys: {}",
                  answer.status == 0 ? answer.trouble : fmt::format("status {}", answer.status));
  }
  return parse_role_keys(answer.body, "the container's role");
}

// A token first (IMDSv2), then the role's name, then its keys.
std::optional<LentKeys> Credentials::from_machine() const {
  if (environment_.variable("AWS_EC2_METADATA_DISABLED") == "true") return std::nullopt;
  const std::string endpoint = environment_.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  const Url url = endpoint.empty() ? Url{"http", kMachineHost, "/"} : split_url(endpoint);
  Request request = request_to(url);
  request.method = "PUT";
  request.path = "/latest/api/token";
  request.headers["x-aws-ec2-metadata-token-ttl-seconds"] = "21600";
  const Answer token = http_.send(request);
  if (!token.good()) return std::nullopt;  // no such machine
  Request get = request_to(url);
  get.headers["x-aws-ec2-metadata-token"] = token.body;
  get.path = "/latest/meta-data/iam/security-credentials/";
  const Answer role = http_.send(get);
  if (!role.good() || role.body.empty()) return std::nullopt;  // a machine without a role
  get.path += url_encoded(role.body.substr(0, role.body.find('\n')));
  const Answer keys = http_.send(get);
  if (!keys.good()) throw IoError("S3: the machine's role gives no keys: status {}", keys.status);
  return parse_role_keys(keys.body, "the machine's role");
}

}  // namespace tandem::s3
