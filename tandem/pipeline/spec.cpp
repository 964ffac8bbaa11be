#include "tandem/pipeline/spec.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <utility>
#include <variant>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/nearest.h"
#include "tandem/config/values.h"
#include "tandem/config/yaml_shape.h"
#include "tandem/pipeline/words.h"

namespace tandem::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kFileKeys = {"store", "on",    "params",
                                                       "steps", "slurm", "kubernetes"};
constexpr std::array<std::string_view, 13> kStepKeys = {"run",    "in",      "out",       "needs", "foreach",
                                                        "when",   "retries", "timeout",   "on",    "shell",
                                                        "resume", "slurm",   "kubernetes"};
constexpr size_t kMostInstances = 10000;  // of a step; nor may a file have more of them

std::string joined(std::span<const std::string_view> names) {
  std::string text;
  for (std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), fits) &&
         (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '_');
}

// Walks the nodes of one file.
class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  std::string place(const YAML::Node& node, std::string_view what) const {
    return fmt::format("{}:{}: {}", file_, node.Mark().line + 1, what);
  }

  // The value of every key of a table, each of which must be one of `known`.
  std::map<std::string, YAML::Node, std::less<>> table(const YAML::Node& node,
                                                       std::span<const std::string_view> known,
                                                       std::string_view what) const {
    std::map<std::string, YAML::Node, std::less<>> found;
    for (const auto& [key, value] : pairs(node, what)) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        const std::optional<std::string_view> meant = likely(key, known);
        throw ConfigError(
            "{}: no such key; {}",
            place(value, fmt::format("{}{}", what.empty() ? "" : fmt::format("{}.", what), shortened(key))),
            meant ? fmt::format("did you mean {}?", *meant)
                  : fmt::format("expected one of {}", joined(known)));
      }
      found.emplace(key, value);
    }
    return found;
  }

  // Keys and values in the order of the file, no key twice.
  std::vector<std::pair<std::string, YAML::Node>> pairs(const YAML::Node& node, std::string_view what) const {
    if (!node.IsMap()) throw ConfigError("{}: expected `key: value` pairs", place(node, what));
    std::vector<std::pair<std::string, YAML::Node>> found;
    std::set<std::string> seen;
    for (const auto& item : node) {
      if (!item.first.IsScalar()) throw ConfigError("{}: expected names as keys", place(item.first, what));
      const std::string& key = item.first.Scalar();
      if (!seen.insert(key).second)
        throw ConfigError("{}: {} is there twice; rename one", place(item.first, what), in_quotes(key));
      found.emplace_back(key, item.second);
    }
    return found;
  }

  std::string text(const YAML::Node& node, std::string_view what) const {
    if (!node.IsScalar()) throw ConfigError("{}: expected a text", place(node, what));
    if (node.Scalar().find('\0') != std::string::npos)
      throw ConfigError("{}: a zero byte cannot be part of a word", place(node, what));
    return node.Scalar();
  }

  std::vector<std::string> texts(const YAML::Node& node, std::string_view what) const {
    if (node.IsScalar()) return {text(node, what)};
    if (!node.IsSequence()) throw ConfigError("{}: expected a text or a list of texts", place(node, what));
    std::vector<std::string> found;
    for (const YAML::Node& item : node) found.push_back(text(item, what));
    return found;
  }

  bool flag(const YAML::Node& node, std::string_view what) const {
    const std::string found = text(node, what);
    if (found != "true" && found != "false")
      throw ConfigError("{}: expected true or false, found {}", place(node, what), in_quotes(found));
    return found == "true";
  }

  Where where(const YAML::Node& node, std::string_view what) const {
    const std::string found = text(node, what);
    for (const Where each : {Where::Local, Where::Slurm, Where::Kubernetes}) {
      if (found == name_of(each)) return each;
    }
    throw ConfigError("{}: expected local, slurm or kubernetes, found {}", place(node, what),
                      in_quotes(found));
  }

  // Over what is there: a step's own go over the file's.
  void cluster(Where kind, const YAML::Node& node, const std::string& what, ClusterSpec& spec) const {
    using Text = std::string ClusterSpec::*;
    using Texts = std::vector<std::string> ClusterSpec::*;
    using Number = int64_t ClusterSpec::*;
    using Member = std::variant<Text, Texts, Number>;
    static const std::map<std::string_view, Member> kBoth = {{"gpus", &ClusterSpec::gpus},
                                                             {"cpus", &ClusterSpec::cpus},
                                                             {"memory", &ClusterSpec::memory},
                                                             {"program", &ClusterSpec::program}};
    static const std::map<std::string_view, Member> kSlurm = {{"time", &ClusterSpec::time},
                                                              {"partition", &ClusterSpec::partition},
                                                              {"account", &ClusterSpec::account},
                                                              {"qos", &ClusterSpec::qos},
                                                              {"constraint", &ClusterSpec::constraint}};
    static const std::map<std::string_view, Member> kKubernetes = {
        {"image", &ClusterSpec::image},
        {"namespace", &ClusterSpec::space},
        {"context", &ClusterSpec::context},
        {"service_account", &ClusterSpec::service_account},
        {"shm", &ClusterSpec::shm},
        {"claim", &ClusterSpec::claims},
        {"env_secret", &ClusterSpec::env_secrets},
        {"node_selector", &ClusterSpec::selectors},
        {"toleration", &ClusterSpec::tolerations},
        {"user", &ClusterSpec::user}};
    std::map<std::string_view, Member> known = kind == Where::Slurm ? kSlurm : kKubernetes;
    known.insert(kBoth.begin(), kBoth.end());
    std::vector<std::string_view> names;
    for (const auto& [name, member] : known) names.push_back(name);
    for (const auto& [key, value] : table(node, names, what)) {
      const std::string full = fmt::format("{}.{}", what, key);
      const Member member = known.at(key);
      if (const Text* one = std::get_if<Text>(&member)) {
        spec.** one = text(value, full);
      } else if (const Texts* several = std::get_if<Texts>(&member)) {
        spec.** several = texts(value, full);
      } else {
        spec.**std::get_if<Number>(&member) = whole(value, full, 0, 1000000000);
      }
    }
  }

  int64_t whole(const YAML::Node& node, const std::string& what, int64_t least, int64_t most) const {
    const std::string found = text(node, what);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), value);
    if (error != std::errc() || end != found.data() + found.size() || value < least || value > most)
      throw ConfigError("{}: expected a whole number from {} to {}, found {}", place(node, what), least, most,
                        in_quotes(found));
    return value;
  }

  Values params(const YAML::Node& node) const {
    Values values;
    for (const auto& [name, value] : pairs(node, "params")) {
      require_name(node, name, "params");
      values[name] = text(value, "params." + name);
    }
    return values;
  }

  void require_name(const YAML::Node& node, const std::string& name, std::string_view what) const {
    if (is_name(name) && name != "in" && name != "out") return;
    throw ConfigError("{}: expected a name of letters, digits, - and _ other than in and out, found {}",
                      place(node, what), in_quotes(name));
  }

  struct Defaults {
    Where where = Where::Local;
    ClusterSpec slurm, kubernetes;
  };

  StepSpec step(const std::string& name, const YAML::Node& node, const Defaults& defaults) const {
    StepSpec step;
    step.name = name;
    step.place = place(node, name);
    auto keys = table(node, kStepKeys, name);
    if (!keys.contains("run")) throw ConfigError("{}: expected `run`, the step's command", step.place);
    if (keys.contains("shell")) step.shell = flag(keys["shell"], name + ".shell");
    read_command(step, keys["run"]);
    step.where = keys.contains("on") ? where(keys["on"], name + ".on") : defaults.where;
    if (step.where != Where::Local)
      step.cluster = step.where == Where::Slurm ? defaults.slurm : defaults.kubernetes;
    for (const Where kind : {Where::Slurm, Where::Kubernetes}) {
      const std::string key(name_of(kind));
      if (!keys.contains(key)) continue;
      ClusterSpec unused;  // the step may run there another time: what it says is read all the same
      cluster(kind, keys[key], name + "." + key, kind == step.where ? step.cluster : unused);
    }
    if (keys.contains("in")) step.in = texts(keys["in"], name + ".in");
    if (keys.contains("needs")) step.needs = texts(keys["needs"], name + ".needs");
    if (keys.contains("out")) {
      step.out = text(keys["out"], name + ".out");
      if (step.out.empty()) throw ConfigError("{}: expected a path", place(keys["out"], name + ".out"));
    }
    if (keys.contains("when"))
      step.when = parse_condition(text(keys["when"], name + ".when"), place(keys["when"], name + ".when"));
    if (keys.contains("resume")) step.resume = flag(keys["resume"], name + ".resume");
    if (keys.contains("foreach")) read_foreach(step, keys["foreach"]);
    if (keys.contains("retries")) step.retries = whole(keys["retries"], name + ".retries", 0, 1000);
    if (keys.contains("timeout")) {
      const std::string found = text(keys["timeout"], name + ".timeout");
      const std::optional<double> seconds = parse_time_span(found);
      if (!seconds) {
        throw ConfigError("{}: expected a time above 0 such as 90s, 15m, 2h or 1d, found {}",
                          place(keys["timeout"], name + ".timeout"), in_quotes(found));
      }
      step.timeout_s = *seconds;
    }
    return step;
  }

 private:
  void read_command(StepSpec& step, const YAML::Node& node) const {
    const std::string where = place(node, step.name + ".run");
    if (step.shell) {
      step.words = {text(node, step.name + ".run")};
    } else {
      step.words = node.IsSequence() ? texts(node, step.name + ".run")
                                     : split_words(text(node, step.name + ".run"), where);
    }
    if (step.words.empty() || step.words.front().empty()) throw ConfigError("{}: expected a command", where);
  }

  void read_foreach(StepSpec& step, const YAML::Node& node) const {
    size_t instances = 1;
    for (const auto& [name, values] : pairs(node, step.name + ".foreach")) {
      require_name(node, name, step.name + ".foreach");
      const std::string what = fmt::format("{}.foreach.{}", step.name, name);
      std::vector<std::string> found = texts(values, what);
      if (found.empty()) throw ConfigError("{}: expected at least one value", place(values, what));
      for (size_t at = 0; at < found.size(); ++at) {
        if (std::find(found.begin(), found.begin() + static_cast<ptrdiff_t>(at), found[at]) !=
            found.begin() + static_cast<ptrdiff_t>(at))
          throw ConfigError("{}: {} is there twice", place(values, what), in_quotes(found[at]));
      }
      instances *= found.size();
      if (instances > kMostInstances)
        throw ConfigError("{}: expected at most {} combinations, found more",
                          place(node, step.name + ".foreach"), kMostInstances);
      step.foreach.emplace_back(name, std::move(found));
    }
  }

  std::string file_;
};

void add_params(Spec& spec, std::span<const std::string> params) {
  for (const std::string& assignment : params) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0)
      throw ConfigError("--param {}: expected NAME=VALUE", shortened(assignment));
    const std::string name = assignment.substr(0, equals);
    const auto found = spec.params.find(name);
    if (found == spec.params.end()) {
      std::vector<std::string_view> known;
      for (const auto& [each, value] : spec.params) known.push_back(each);
      throw ConfigError("--param {}: {} has no such parameter; {}", shortened(name), spec.file.string(),
                        known.empty() ? "it has no `params`" : "expected one of " + joined(known));
    }
    found->second = assignment.substr(equals + 1);
  }
}

Spec parse_spec(const std::string& text, const fs::path& file) {
  Spec spec;
  spec.file = file;
  spec.folder = file.parent_path().empty() ? fs::path(".") : file.parent_path();
  if (text.size() > kMaxConfigBytes)
    throw ConfigError("{}: expected at most {} bytes, found {}", file.string(), kMaxConfigBytes, text.size());
  if (const std::optional<YamlFault> fault = find_yaml_fault(text, 2 * kMostInstances))
    throw ConfigError("{}:{}: {}", file.string(), fault->line, fault->what);
  const Reader reader(file.string());
  const YAML::Node root = YAML::Load(text);
  if (!root.IsMap())
    throw ConfigError("{}: expected a pipeline: `steps:` with their names and commands", file.string());
  auto keys = reader.table(root, kFileKeys, "");
  if (keys.contains("store")) spec.store = reader.text(keys["store"], "store");
  if (spec.store.starts_with("s3://")) {
    spec.remote = std::exchange(spec.store, "artifacts");
    while (spec.remote.ends_with('/')) spec.remote.pop_back();
  }
  if (spec.store.find("://") != std::string::npos)
    throw ConfigError("{}: expected a directory or s3://BUCKET/PREFIX, found {}",
                      reader.place(keys["store"], "store"), in_quotes(spec.store));
  if (spec.store.empty()) throw ConfigError("{}: expected a directory", reader.place(keys["store"], "store"));
  Reader::Defaults defaults;
  if (keys.contains("on")) defaults.where = reader.where(keys["on"], "on");
  if (keys.contains("slurm")) reader.cluster(Where::Slurm, keys["slurm"], "slurm", defaults.slurm);
  if (keys.contains("kubernetes"))
    reader.cluster(Where::Kubernetes, keys["kubernetes"], "kubernetes", defaults.kubernetes);
  if (keys.contains("params")) spec.params = reader.params(keys["params"]);
  if (!keys.contains("steps") || !keys["steps"].IsMap() || keys["steps"].size() == 0)
    throw ConfigError("{}: expected `steps:` with a name and a command for each", file.string());
  for (const auto& [name, node] : reader.pairs(keys["steps"], "steps")) {
    reader.require_name(node, name, "steps");
    spec.steps.push_back(reader.step(name, node, defaults));
  }
  return spec;
}

}  // namespace

std::string_view name_of(Where where) {
  switch (where) {
    case Where::Local: return "local";
    case Where::Slurm: return "slurm";
    case Where::Kubernetes: return "kubernetes";
  }
  return "";
}

std::optional<double> parse_time_span(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value > 0) || value > 1e9) return std::nullopt;
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  if (unit.empty() || unit == "s") return value;
  if (unit == "m") return value * 60;
  if (unit == "h") return value * 3600;
  if (unit == "d") return value * 86400;
  return std::nullopt;
}

Spec read_spec(const fs::path& file, std::span<const std::string> params) {
  if (!is_there(file)) throw ConfigError("{}: no such file; expected a pipeline's YAML", file.string());
  try {
    Spec spec = parse_spec(read_text(file), file);
    add_params(spec, params);
    return spec;
  } catch (const YAML::Exception& error) {
    throw ConfigError("{}:{}: not YAML: {}", file.string(), error.mark.line + 1, error.msg);
  }
}

}  // namespace tandem::pipeline
