#include "tandem/cluster/kubernetes_manifest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "tandem/base/error.h"
#include "tandem/base/utf8.h"
#include "tandem/cluster/yaml_text.h"

namespace tandem::cluster {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kConfigFolder = "/etc/tandem";
constexpr const char* kSecretFolder = "/etc/tandem-secret";
constexpr const char* kWork = "/work";
constexpr int kPort = 29400;
constexpr const char* kReplicated = "node";  // what a JobSet calls its only kind of job

// NAME=VALUE, or with another separator.
std::pair<std::string, std::string> split(const std::string& text, char separator, std::string_view flag,
                                          std::string_view expected) {
  const size_t at = text.find(separator);
  if (at == 0 || at == std::string::npos || at + 1 == text.size())
    throw ConfigError("{}: expected {}, found '{}'", flag, expected, printable(text));
  return {text.substr(0, at), text.substr(at + 1)};
}

void check(const std::string& value, const std::regex& form, std::string_view flag,
           std::string_view expected) {
  if (!std::regex_match(value, form))
    throw ConfigError("{}: expected {}, found '{}'", flag, expected, printable(value));
}

const std::regex& name_form() {
  static const std::regex form("[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*");
  return form;
}
const std::regex& label_form() {  // a key: an optional prefix and a name
  static const std::regex form(
      "([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?");
  return form;
}
const std::regex& value_form() {
  static const std::regex form("([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?");
  return form;
}
const std::regex& quantity_form() {
  static const std::regex form("[0-9]+(\\.[0-9]+)?(m|k|[KMGTPE]i?|e[0-9]+)?");
  return form;
}
constexpr std::string_view kNameWords = "a name of small letters, digits and dashes";
constexpr std::string_view kLabelWords = "a label's key such as topology.kubernetes.io/zone";
constexpr std::string_view kQuantityWords = "a quantity such as 4, 500m or 64Gi";

// Kubernetes replaces $(NAME) in arguments; $$ is a dollar.
std::string argument(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += c == '$' ? "$$" : std::string(1, c);
  return escaped;
}

Json labels(const std::string& name) {
  return {{"app.kubernetes.io/name", "tandem"}, {"app.kubernetes.io/instance", name}};
}

Json metadata(const std::string& name, const KubernetesOptions& options) {
  return {{"name", name}, {"namespace", options.space}, {"labels", labels(name)}};
}

Json service(const std::string& name, const KubernetesOptions& options) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", metadata(name, options)},
          {"spec",
           {{"clusterIP", "None"},
            {"publishNotReadyAddresses", true},  // they have to meet before any of them is ready
            {"selector", labels(name)},
            {"ports", Json::array({{{"name", "meet"}, {"port", kPort}, {"protocol", "TCP"}}})}}}};
}

Json config_map(const std::string& name, const KubernetesOptions& options) {
  if (!is_utf8(options.config_text)) throw ConfigError("CONFIG: is not UTF-8, which a ConfigMap is");
  constexpr size_t kMost = 1000000;
  if (options.config_text.size() > kMost)
    throw ConfigError("CONFIG: has {} bytes, and a ConfigMap takes {}", options.config_text.size(), kMost);
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", metadata(name, options)},
          {"immutable", true},
          {"data", {{"config.yaml", options.config_text}}}};
}

Json secret_of(const std::string& name, const KubernetesOptions& options) {
  Json described = metadata(options.secret, options);
  described["labels"] = labels(name);
  return {{"apiVersion", "v1"},
          {"kind", "Secret"},
          {"metadata", described},
          {"immutable", true},
          {"stringData", {{"secret", options.new_secret}}}};
}

// The first pod, by the name that the service, or the JobSet's own, gives it.
std::string meeting_place(const std::string& name, const KubernetesOptions& options) {
  return options.jobset ? fmt::format("{}-{}-0-0.{}", name, kReplicated, name)
                        : fmt::format("{}-0.{}", name, name);
}

std::vector<std::string> training_words(const Job& job, const std::string& name,
                                        const KubernetesOptions& options) {
  std::vector<std::string> words = {"launch",
                                    "--nproc-per-node",
                                    std::to_string(job.ranks_per_node),
                                    "--max-restarts",
                                    std::to_string(job.max_restarts),
                                    "--grace",
                                    std::to_string(job.grace_s)};
  if (job.nodes > 1) {
    for (const std::string& word :
         {std::string("--nnodes"), std::to_string(job.nodes), std::string("--rdzv-endpoint"),
          fmt::format("{}:{}", meeting_place(name, options), kPort), std::string("--rdzv-id"), name})
      words.push_back(word);
  }
  words.insert(words.end(), {"train", fmt::format("{}/config.yaml", kConfigFolder)});
  words.insert(words.end(), job.arguments.begin(), job.arguments.end());
  return words;
}

std::vector<std::string> words_of(const Job& job, const std::string& name, const KubernetesOptions& options) {
  std::vector<std::string> words = job.words.empty() ? training_words(job, name, options) : job.words;
  for (std::string& word : words) {
    if (word.find('\0') != std::string::npos) throw ConfigError("'{}': holds a zero byte", printable(word));
    word = argument(word);
  }
  return words;
}

Json resources(const Job& job, const KubernetesOptions& options) {
  Json asked = Json::object();
  if (job.cpus_per_node > 0) asked["cpu"] = std::to_string(job.cpus_per_node);
  if (!job.memory_per_node.empty()) {
    check(job.memory_per_node, quantity_form(), "--memory-per-node", kQuantityWords);
    asked["memory"] = job.memory_per_node;
  }
  if (job.gpus_per_node > 0) asked["nvidia.com/gpu"] = std::to_string(job.gpus_per_node);
  for (const std::string& resource : options.resources) {
    const auto [name, quantity] = split(resource, '=', "--resource", "NAME=QUANTITY");
    check(name, label_form(), "--resource", "a resource's name such as vpc.amazonaws.com/efa");
    check(quantity, quantity_form(), "--resource", kQuantityWords);
    asked[name] = quantity;
  }
  return {{"requests", asked}, {"limits", asked}};
}

// What a pod has of the outside: a volume and where it is seen.
struct Volumes {
  Json volumes = Json::array();
  Json mounts = Json::array();
  void add(const std::string& name, const std::string& path, Json source, bool read_only) {
    Json volume = {{"name", name}};
    volume.update(source);
    volumes.push_back(volume);
    Json mount = {{"name", name}, {"mountPath", path}};
    if (read_only) mount["readOnly"] = true;
    mounts.push_back(mount);
  }
};

Volumes volumes_of(const Job& job, const std::string& name, const KubernetesOptions& options) {
  Volumes all;
  if (job.words.empty()) all.add("config", kConfigFolder, {{"configMap", {{"name", name}}}}, true);
  if (job.nodes > 1) {
    // A file, which no program that ranks start inherits. It is root's; fsGroup lets the pod's user read it.
    const Json item = {{"key", "secret"}, {"path", "secret"}};
    all.add(
        "secret", kSecretFolder,
        {{"secret", {{"secretName", options.secret}, {"defaultMode", 0400}, {"items", Json::array({item})}}}},
        true);
  }
  all.add("tmp", "/tmp", {{"emptyDir", Json::object()}}, false);
  if (!options.shared_memory.empty()) {
    check(options.shared_memory, quantity_form(), "--shm", kQuantityWords);
    all.add("shm", "/dev/shm", {{"emptyDir", {{"medium", "Memory"}, {"sizeLimit", options.shared_memory}}}},
            false);
  }
  bool has_work = false;
  for (size_t i = 0; i < options.claims.size(); ++i) {
    const auto [claim, path] = split(options.claims[i], ':', "--claim", "NAME:PATH");
    check(claim, name_form(), "--claim", kNameWords);
    if (!path.starts_with('/') || path.find(':') != std::string::npos)
      throw ConfigError("--claim: expected an absolute path without colons, found '{}'", printable(path));
    has_work = has_work || path == kWork;
    all.add(fmt::format("claim-{}", i), path, {{"persistentVolumeClaim", {{"claimName", claim}}}}, false);
  }
  if (!has_work) all.add("work", kWork, {{"emptyDir", Json::object()}}, false);
  return all;
}

Json tolerations_of(const KubernetesOptions& options) {
  Json all = Json::array();
  for (const std::string& text : options.tolerations) {
    const size_t colon = text.rfind(':');
    const std::string taint = text.substr(0, colon);
    const size_t equals = taint.find('=');
    Json toleration = {{"key", taint.substr(0, equals)}};
    check(toleration["key"].get<std::string>(), label_form(), "--toleration", "KEY[=VALUE][:EFFECT]");
    toleration["operator"] = equals == std::string::npos ? "Exists" : "Equal";
    if (equals != std::string::npos) {
      toleration["value"] = taint.substr(equals + 1);
      check(taint.substr(equals + 1), value_form(), "--toleration", "a taint's value");
    }
    if (colon != std::string::npos) {
      static const std::regex effects("NoSchedule|PreferNoSchedule|NoExecute");
      check(text.substr(colon + 1), effects, "--toleration",
            "an effect NoSchedule, PreferNoSchedule or NoExecute");
      toleration["effect"] = text.substr(colon + 1);
    }
    all.push_back(toleration);
  }
  return all;
}

void place(Json& pod, const std::string& name, const KubernetesOptions& options) {
  if (!options.selectors.empty()) {
    Json selectors = Json::object();
    for (const std::string& selector : options.selectors) {
      const auto [key, value] = split(selector, '=', "--node-selector", "KEY=VALUE");
      check(key, label_form(), "--node-selector", kLabelWords);
      check(value, value_form(), "--node-selector", "a label's value");
      selectors[key] = value;
    }
    pod["nodeSelector"] = selectors;
  }
  if (!options.tolerations.empty()) pod["tolerations"] = tolerations_of(options);
  if (!options.close.empty()) {
    check(options.close, label_form(), "--close", kLabelWords);
    const Json term = {{"labelSelector", {{"matchLabels", labels(name)}}}, {"topologyKey", options.close}};
    pod["affinity"] = {
        {"podAffinity", {{"requiredDuringSchedulingIgnoredDuringExecution", Json::array({term})}}}};
  }
  if (!options.spread.empty()) {
    check(options.spread, label_form(), "--spread", kLabelWords);
    pod["topologySpreadConstraints"] = Json::array({{{"maxSkew", 1},
                                                     {"topologyKey", options.spread},
                                                     {"whenUnsatisfiable", "DoNotSchedule"},
                                                     {"labelSelector", {{"matchLabels", labels(name)}}}}});
  }
}

Json container(const Job& job, const std::string& name, const KubernetesOptions& options,
               const Json& mounts) {
  const Json index = {
      {"fieldRef", {{"fieldPath", "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}}};
  Json env = Json::array({{{"name", "HOME"}, {"value", kWork}}});
  if (job.nodes > 1) {
    env.push_back({{"name", "PET_NODE_RANK"}, {"valueFrom", index}});
    env.push_back({{"name", "TANDEM_SECRET_FILE"}, {"value", fmt::format("{}/secret", kSecretFolder)}});
  }
  Json made = {{"name", "tandem"},
               {"image", options.image},
               {"command", Json::array({argument(job.program)})},
               {"args", words_of(job, name, options)},
               {"workingDir", options.directory},
               {"env", env}};
  if (!options.environment.empty()) {
    made["envFrom"] = Json::array();
    for (const std::string& secret : options.environment) {
      check(secret, name_form(), "--env-secret", kNameWords);
      made["envFrom"].push_back({{"secretRef", {{"name", secret}}}});
    }
  }
  if (job.nodes > 1) made["ports"] = Json::array({{{"name", "meet"}, {"containerPort", kPort}}});
  made["resources"] = resources(job, options);
  made["securityContext"] = {{"allowPrivilegeEscalation", false},
                             {"readOnlyRootFilesystem", true},
                             {"capabilities", {{"drop", Json::array({"ALL"})}}}};
  made["volumeMounts"] = mounts;
  return made;
}

Json pod_of(const Job& job, const std::string& name, const KubernetesOptions& options) {
  const Volumes volumes = volumes_of(job, name, options);
  Json pod = {
      {"restartPolicy", "Never"},  // what podFailurePolicy asks for; the Job makes new pods
                                   // The launcher's grace and a little: ranks save, then it tells the others.
      {"terminationGracePeriodSeconds", job.grace_s + 15},
      {"automountServiceAccountToken", false},
      {"enableServiceLinks", false},
      {"securityContext",
       {{"runAsNonRoot", true},
        {"runAsUser", options.user},
        {"runAsGroup", options.user},
        {"fsGroup", options.user},
        {"seccompProfile", {{"type", "RuntimeDefault"}}}}}};
  if (!options.jobset) pod["subdomain"] = name;  // a JobSet gives its pods one itself
  if (!options.service_account.empty()) {
    check(options.service_account, name_form(), "--service-account", kNameWords);
    pod["serviceAccountName"] = options.service_account;
  }
  place(pod, name, options);
  pod["containers"] = Json::array({container(job, name, options, volumes.mounts)});
  pod["volumes"] = volumes.volumes;
  return pod;
}

Json job_spec(const Job& job, const std::string& name, const KubernetesOptions& options) {
  // 2, 3 and 4 are what tandem says of a config, of memory and of data: another try would change nothing.
  const Json never = {
      {"action", "FailJob"},
      {"onExitCodes", {{"containerName", "tandem"}, {"operator", "In"}, {"values", Json::array({2, 3, 4})}}}};
  const Json condition = {{"type", "DisruptionTarget"}, {"status", "True"}};
  const Json disrupted = {{"action", "Ignore"}, {"onPodConditions", Json::array({condition})}};
  return {{"completionMode", "Indexed"},
          {"completions", job.nodes},
          {"parallelism", job.nodes},
          {"backoffLimit", options.jobset ? 0 : options.retries},
          {"podReplacementPolicy", "Failed"},  // else two pods could have one index for a while
          {"podFailurePolicy", {{"rules", Json::array({disrupted, never})}}},
          {"template", {{"metadata", {{"labels", labels(name)}}}, {"spec", pod_of(job, name, options)}}}};
}

Json job_of(const Job& job, const std::string& name, const KubernetesOptions& options) {
  return {{"apiVersion", "batch/v1"},
          {"kind", "Job"},
          {"metadata", metadata(name, options)},
          {"spec", job_spec(job, name, options)}};
}

// A pod that fails ends its job, and the set begins anew with all of them.
Json jobset_of(const Job& job, const std::string& name, const KubernetesOptions& options) {
  const Json hopeless = {{"name", "hopeless"},
                         {"action", "FailJobSet"},
                         {"onJobFailureReasons", Json::array({"PodFailurePolicy"})}};
  const Json replicated = {
      {"name", kReplicated}, {"replicas", 1}, {"template", {{"spec", job_spec(job, name, options)}}}};
  return {
      {"apiVersion", "jobset.x-k8s.io/v1alpha2"},
      {"kind", "JobSet"},
      {"metadata", metadata(name, options)},
      {"spec",
       {{"network", {{"enableDNSHostnames", true}, {"subdomain", name}, {"publishNotReadyAddresses", true}}},
        {"failurePolicy",
         {{"maxRestarts", options.retries},
          {"restartStrategy", "BlockingRecreate"},  // the last pods of a try are gone before the next begins
          {"rules", Json::array({hopeless})}}},
        {"replicatedJobs", Json::array({replicated})}}}};
}

}  // namespace

std::string kubernetes_name(const std::string& name) {
  constexpr size_t kMost = 52;
  std::string made;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (upper || plain) {
      made += upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!made.empty() && made.back() != '-') {
      made += '-';
    }
  }
  made = made.substr(0, kMost);
  while (made.ends_with('-')) made.pop_back();
  // A service's name begins with a letter.
  if (made.empty() || (made.front() >= '0' && made.front() <= '9')) made = ("run-" + made).substr(0, kMost);
  while (made.ends_with('-')) made.pop_back();
  return made;
}

std::vector<Json> kubernetes_objects(const Job& job, const KubernetesOptions& options) {
  if (options.image.empty())
    throw ConfigError("--kubernetes: needs --image, a container image that has tandem on its PATH");
  if (options.image.find_first_of(" \t\n\r'\"\\$`") != std::string::npos || !is_utf8(options.image))
    throw ConfigError("--image: expected an image such as registry/tandem:0.2, found '{}'",
                      printable(options.image));
  if (job.nodes > 1 && options.secret.empty())
    throw ConfigError(
        "--kubernetes: {} nodes need --secret NAME, a Secret that tells them from strangers: kubectl create "
        "secret "
        "generic NAME --from-literal=secret=$(openssl rand -hex 32)",
        job.nodes);
  if (!options.secret.empty()) check(options.secret, name_form(), "--secret", kNameWords);
  static const std::regex space("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?");
  check(options.space, space, "--namespace", kNameWords);
  if (!options.close.empty() && !options.spread.empty())
    throw ConfigError("--close and --spread contradict each other; leave one of them out");
  if (options.user < 1)
    throw ConfigError("--kubernetes: pods run as a user without rights, not as {}", options.user);
  const std::string name = kubernetes_name(job.name);
  if (!job.words.empty()) return {job_of(job, name, options)};
  std::vector<Json> objects = {config_map(name, options)};
  if (job.nodes > 1 && !options.new_secret.empty()) objects.push_back(secret_of(name, options));
  if (job.nodes > 1 && !options.jobset) objects.push_back(service(name, options));
  objects.push_back(options.jobset ? jobset_of(job, name, options) : job_of(job, name, options));
  return objects;
}

std::string kubernetes_manifest(const Job& job, const KubernetesOptions& options) {
  std::string text;
  for (const Json& object : kubernetes_objects(job, options))
    text += (text.empty() ? "" : "---\n") + yaml_text(object);
  return text;
}

}  // namespace tandem::cluster
