#include "tandem/cluster/kubernetes_access.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/utf8.h"
#include "tandem/cluster/subprocess.h"

namespace tandem::cluster {
namespace {

constexpr int64_t kMostBytes = int64_t{4} << 20;
constexpr const char* kPodFolder = "/var/run/secrets/kubernetes.io/serviceaccount";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

// One thing of a kubeconfig, with the file that it stands in: relative paths begin there.
struct Entry {
  YAML::Node node;
  std::filesystem::path file;

  std::string text(const char* key) const {
    const YAML::Node found = node[key];
    return found && found.IsScalar() ? found.as<std::string>() : "";
  }
  std::string file_text(const std::string& path) const {
    return read_text(file.parent_path() / path, kMostBytes);
  }
  // `key`-data holds it in base64, or `key` names a file.
  std::string pem(const std::string& key) const {
    const std::string data = text((key + "-data").c_str());
    if (!data.empty()) return from_base64(data, fmt::format("{}: {}-data", file.string(), key));
    const std::string path = text(key.c_str());
    return path.empty() ? "" : file_text(path);
  }
};

class Kubeconfig {
 public:
  explicit Kubeconfig(const std::vector<std::filesystem::path>& files) {
    for (const auto& file : files) {
      if (!is_there(file)) continue;
      try {
        documents_.push_back({YAML::Load(read_text(file, kMostBytes)), file});
      } catch (const YAML::Exception& error) {
        throw ConfigError("{}: is no kubeconfig: {}", file.string(), error.what());
      }
      if (!documents_.back().node.IsMap()) throw ConfigError("{}: is no kubeconfig", file.string());
    }
  }

  bool empty() const { return documents_.empty(); }
  std::string current_context() const {
    for (const Entry& document : documents_) {
      if (const std::string name = document.text("current-context"); !name.empty()) return name;
    }
    return "";
  }
  std::string name() const { return documents_.front().file.string(); }

  // The one called `name` in the list `kinds`, whose content stands under `kind`.
  Entry find(const char* kinds, const char* kind, const std::string& name) const {
    for (const Entry& document : documents_) {
      for (const YAML::Node& one : document.node[kinds]) {
        const Entry entry{one, document.file};
        if (one.IsMap() && entry.text("name") == name && one[kind].IsMap()) return {one[kind], document.file};
      }
    }
    throw ConfigError("{}: has no {} '{}'", this->name(), kind, printable(name));
  }

 private:
  std::vector<Entry> documents_;
};

// A program that gets a token or a certificate, as those of EKS, GKE and AKS do.
void ask_program(const Entry& user, const YAML::Node& exec, KubernetesAccess& access) {
  const Entry plugin{exec, user.file};
  std::vector<std::string> words = {"env"};
  for (const YAML::Node& one : exec["env"]) {
    const Entry pair{one, user.file};
    words.push_back(pair.text("name") + "=" + pair.text("value"));
  }
  const std::string version = plugin.text("apiVersion");
  const nlohmann::json info = {
      {"apiVersion", version}, {"kind", "ExecCredential"}, {"spec", {{"interactive", false}}}};
  words.push_back("KUBERNETES_EXEC_INFO=" + info.dump());
  const std::string program = plugin.text("command");
  words.push_back(program.find('/') == std::string::npos ? program
                                                         : (user.file.parent_path() / program).string());
  for (const YAML::Node& argument : exec["args"]) words.push_back(argument.as<std::string>());
  const Ended ended = run_program(words);
  const nlohmann::json answer = nlohmann::json::parse(ended.out, nullptr, false);
  const nlohmann::json status =
      answer.is_object() ? answer.value("status", nlohmann::json::object()) : nlohmann::json();
  if (ended.code != 0 || !status.is_object())
    throw ConfigError("{}: '{}' gave no credentials: {}", user.file.string(), printable(program),
                      ended.err.empty() ? fmt::format("it ended with {}", ended.code)
                                        : printable(ended.err.substr(0, ended.err.find('\n'))));
  access.token = status.value("token", "");
  access.certificate = status.value("clientCertificateData", "");
  access.key = status.value("clientKeyData", "");
}

void take_user(const Entry& user, KubernetesAccess& access) {
  access.certificate = user.pem("client-certificate");
  access.key = user.pem("client-key");
  access.token = user.text("token");
  if (const std::string path = user.text("tokenFile"); access.token.empty() && !path.empty())
    access.token = trimmed(user.file_text(path));
  if (const YAML::Node exec = user.node["exec"]; exec && exec.IsMap()) ask_program(user, exec, access);
  if (user.node["auth-provider"])
    throw ConfigError(
        "{}: has an auth-provider, which Kubernetes has given up; let the cloud's own tool write the "
        "kubeconfig "
        "anew",
        user.file.string());
  // Not sent in the clear, and not in a header that could hold another.
  if (access.token.find_first_of("\r\n") != std::string::npos)
    throw ConfigError("{}: the token has a line break", user.file.string());
}

}  // namespace

std::string from_base64(const std::string& text, const std::string& what) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '\n' || c == '\r' || c == ' ' || c == '=') continue;
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) throw ConfigError("{}: is no base64", what);
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

KubernetesAccess read_kubeconfig(const std::vector<std::filesystem::path>& files, const std::string& wanted) {
  const Kubeconfig config(files);
  if (config.empty())
    throw ConfigError("{}: no such kubeconfig", files.empty() ? "" : files.front().string());
  KubernetesAccess access;
  access.context = wanted.empty() ? config.current_context() : wanted;
  if (access.context.empty())
    throw ConfigError("{}: has no current-context; name one with --context", config.name());
  const Entry context = config.find("contexts", "context", access.context);
  if (const std::string space = context.text("namespace"); !space.empty()) access.space = space;
  const Entry cluster = config.find("clusters", "cluster", context.text("cluster"));
  access.server = cluster.text("server");
  while (access.server.ends_with('/')) access.server.pop_back();
  if (!access.server.starts_with("https://"))
    throw ConfigError("{}: expected a server with https://, found '{}'", config.name(),
                      printable(access.server));
  access.authority = cluster.pem("certificate-authority");
  access.any_server = cluster.text("insecure-skip-tls-verify") == "true";
  access.proxy = cluster.text("proxy-url");
  if (!cluster.text("tls-server-name").empty())
    throw ConfigError("{}: tls-server-name is not understood here; name the server as its certificate does",
                      config.name());
  if (const std::string user = context.text("user"); !user.empty())
    take_user(config.find("users", "user", user), access);
  return access;
}

KubernetesAccess service_account(const std::filesystem::path& folder, const std::string& host,
                                 const std::string& port) {
  KubernetesAccess access;
  const bool is_v6 = host.find(':') != std::string::npos;
  access.server = fmt::format("https://{}:{}", is_v6 ? "[" + host + "]" : host, port);
  access.token = trimmed(read_text(folder / "token", kMostBytes));
  access.authority = read_text(folder / "ca.crt", kMostBytes);
  if (is_there(folder / "namespace")) access.space = trimmed(read_text(folder / "namespace", kMostBytes));
  return access;
}

KubernetesAccess find_kubernetes(const std::string& context) {
  std::vector<std::filesystem::path> files;
  const std::string listed = variable("KUBECONFIG");
  for (size_t at = 0; at < listed.size();) {
    const size_t colon = std::min(listed.find(':', at), listed.size());
    if (colon > at) files.emplace_back(listed.substr(at, colon - at));
    at = colon + 1;
  }
  const std::string home = variable("HOME");
  if (files.empty() && !home.empty() && is_there(std::filesystem::path(home) / ".kube/config"))
    files.push_back(std::filesystem::path(home) / ".kube/config");
  if (!files.empty()) return read_kubeconfig(files, context);
  const std::string host = variable("KUBERNETES_SERVICE_HOST");
  if (!host.empty() && is_there(std::filesystem::path(kPodFolder) / "token"))
    return service_account(kPodFolder, host, variable("KUBERNETES_SERVICE_PORT"));
  throw ConfigError(
      "--kubernetes: no cluster is known here: neither KUBECONFIG nor ~/.kube/config nor a pod's service "
      "account; --dry-run prints what would be submitted");
}

}  // namespace tandem::cluster
