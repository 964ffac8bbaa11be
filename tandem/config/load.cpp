#include "tandem/config/load.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/nearest.h"
#include "tandem/base/quantity.h"
#include "tandem/base/utf8.h"
#include "tandem/config/derive.h"
#include "tandem/config/keys.h"
#include "tandem/config/supported.h"
#include "tandem/config/validate.h"
#include "tandem/config/yaml_shape.h"

namespace tandem {
namespace {

std::string join_path(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

// "config.yaml:12: train" or "--set train": the start of a message before a value has an origin.
std::string place(const std::string& origin, const std::string& path) {
  return fmt::format("{}{} {}", origin, origin.starts_with("--") ? "" : ":", shortened(path));
}

// From whichever source: YAML was looked at before, but --set and JSON were not.
void check_size(const std::string& where, const RawValue& raw) {
  if (raw.items.size() > kMaxListItems)
    throw ConfigError("{}: expected a list of at most {} items, found {}", where, kMaxListItems,
                      raw.items.size());
  for (const std::string& item : raw.items) {
    if (item.size() > kMaxValueBytes)
      throw ConfigError("{}: expected at most {} characters, found {}", where, kMaxValueBytes, item.size());
    if (!is_utf8(item))
      throw ConfigError("{}: expected UTF-8 text, found {}; rename the file, or write it in UTF-8", where,
                        in_quotes(item));
  }
}

std::string no_such_key(const std::string& path) {
  const std::string_view meant = nearest_key(path);
  if (meant.empty()) return "no such key; `tandem explain CONFIG` shows every key";
  return fmt::format("no such key; did you mean {}?", meant);
}

void assign(ResolvedConfig& resolved, const std::string& path, const RawValue& raw,
            const std::string& origin) {
  check_size(place(origin, path), raw);
  const Key* key = find_key(path);
  if (key == nullptr && is_section(path)) {
    throw ConfigError("{}: expected keys under it, such as {}, found a value", place(origin, path),
                      first_key_under(path));
  }
  if (key == nullptr) {
    throw ConfigError("{}: {}", place(origin, path), no_such_key(path));
  }
  if (const Problem problem = key->write(resolved.config, raw, key->limits)) {
    throw ConfigError("{}: {}", place(origin, path), *problem);
  }
  resolved.origins[path] = origin;
}

// Whether a line up to this one begins with a tab, which YAML does not take for indentation.
bool is_indented_by_tabs(const std::string& text, int last_line) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; number <= last_line && std::getline(lines, line); ++number) {
    if (line.substr(0, line.find_first_not_of(" \t")).find('\t') != std::string::npos) return true;
  }
  return false;
}

class YamlReader {
 public:
  YamlReader(ResolvedConfig& resolved, const std::string& file) : resolved_(resolved), file_(file) {}

  void read_text(const std::string& text) {
    try {
      if (const auto fault = find_yaml_fault(text))
        throw ConfigError("{}:{}: {}", file_, fault->line, fault->what);
      const YAML::Node document = YAML::Load(text);
      if (!document.IsNull()) read_map(document, "");
    } catch (const YAML::Exception& error) {
      const int line = error.mark.line + 1;
      if (is_indented_by_tabs(text, line))
        throw ConfigError("{}:{}: not valid YAML: indented by a tab; use spaces", file_, line);
      throw ConfigError("{}:{}: not valid YAML: {}", file_, line, printable(error.msg));
    }
  }

  // A value, as --set gives it: `3`, `[2, 2]`. Text that is no list is taken as it stands.
  static RawValue read_value(const std::string& text, const std::string& where) {
    if (!text.starts_with('[')) return {{text}, false};
    const auto refusal = [&](const std::string& why) {
      return ConfigError("{}: expected a list such as [2, 2], found {} ({})", where, in_quotes(text), why);
    };
    try {
      if (const auto fault = find_yaml_fault(text))
        throw refusal(fault->is_second_document ? "more than a list" : fault->what);
      const YAML::Node list = YAML::Load(text);
      if (!list.IsSequence()) throw refusal("more than a list");
      return to_raw(list, where);
    } catch (const YAML::Exception& error) {
      throw refusal(error.msg);
    }
  }

 private:
  std::string origin(const YAML::Node& node) const {
    return fmt::format("{}:{}", file_, node.Mark().line + 1);
  }

  void read_map(const YAML::Node& node, const std::string& prefix) {
    if (!node.IsMap()) {
      throw ConfigError("{}: expected `key: value` pairs{}{}", origin(node),
                        prefix.empty() ? "" : fmt::format(" under '{}'", prefix),
                        node.IsScalar() ? fmt::format(", found {}", in_quotes(node.Scalar())) : "");
    }
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) throw ConfigError("{}: expected the name of a key", origin(entry.first));
      const std::string path = join_path(prefix, entry.first.Scalar());
      if (entry.second.IsMap() && is_section(path)) {
        read_map(entry.second, path);
      } else {
        read_entry(path, entry.first, entry.second);
      }
    }
  }

  void read_entry(const std::string& path, const YAML::Node& name, const YAML::Node& value) {
    const std::string where = origin(name);
    if (const auto earlier = resolved_.origins.find(path); earlier != resolved_.origins.end()) {
      throw ConfigError("{}: given twice, first at {}; keep one", place(where, path), earlier->second);
    }
    if (value.IsNull() && is_section(path)) return;  // an empty section
    if (value.IsMap() && find_key(path) != nullptr) {
      throw ConfigError("{}: expected {}, found keys below it", place(where, path), find_key(path)->expects);
    }
    assign(resolved_, path, value.IsMap() ? RawValue{} : to_raw(value, place(where, path)), where);
  }

  static RawValue to_raw(const YAML::Node& node, const std::string& where) {
    if (node.IsScalar()) return {{node.Scalar()}, false};
    RawValue raw;
    raw.is_list = node.IsSequence();
    for (const auto& item : node) {
      if (item.IsMap()) {
        raw.add(to_table(item, where));
      } else if (item.IsSequence() && item.size() > 0) {
        RawValue::Table list;
        for (const auto& inner : item) list.emplace_back("", scalar_of(inner, where));
        raw.add(list);
      } else {
        raw.add(scalar_of(item, where));
      }
    }
    return raw;
  }

  static std::string scalar_of(const YAML::Node& node, const std::string& where) {
    if (!node.IsScalar())
      throw ConfigError("{}: expected a plain list, found lists or keys inside it", where);
    return node.Scalar();
  }

  static RawValue::Table to_table(const YAML::Node& node, const std::string& where) {
    RawValue::Table table;
    for (const auto& entry : node)
      table.emplace_back(scalar_of(entry.first, where), scalar_of(entry.second, where));
    return table;
  }

  ResolvedConfig& resolved_;
  const std::string& file_;
};

void apply(ResolvedConfig& resolved, const Override& change) {
  const size_t equals = change.assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    const Key* key = find_key(change.assignment);
    const std::string example =
        key == nullptr ? "train.steps=100" : fmt::format("{}={}", key->path, key->read(Config()).dump());
    throw ConfigError("{} {}: expected key=value, such as {} {}", change.source, shortened(change.assignment),
                      change.source, example);
  }
  const std::string path = change.assignment.substr(0, equals);
  const RawValue raw =
      YamlReader::read_value(change.assignment.substr(equals + 1), place(change.source, path));
  assign(resolved, path, raw, change.source);
}

RawValue to_raw(const nlohmann::json& value) {
  const auto text = [](const nlohmann::json& item) {
    return item.is_string() ? item.get<std::string>() : item.dump();
  };
  RawValue raw;
  raw.is_list = value.is_array();
  if (value.is_array()) {
    for (const nlohmann::json& item : value) {
      if (!item.is_structured()) {
        raw.add(text(item));
        continue;
      }
      RawValue::Table table;
      for (const auto& [name, inner] : item.items())
        table.emplace_back(item.is_array() ? "" : name, text(inner));
      raw.add(table);
    }
  } else if (!value.is_null()) {
    raw.items.push_back(text(value));
  }
  return raw;
}

void read_json(ResolvedConfig& resolved, const nlohmann::json& json, const std::string& prefix,
               const std::string& source) {
  for (const auto& [name, value] : json.items()) {
    const std::string path = join_path(prefix, name);
    if (value.is_object() && is_section(path)) {
      read_json(resolved, value, path, source);
    } else {
      assign(resolved, path, to_raw(value), source);
    }
  }
}

// Configs that programs up to 0.1 saved have the keys of all optimizers; a file with keys of one optimizer or
// schedule may be used with another that --set chooses. Keys that `--set` itself gives are the user's own and
// stay, to be refused.
void forget_other_rules(ResolvedConfig& resolved, std::span<const Override> overrides = {}) {
  for (const Key& key : keys()) {
    if (applies(key, resolved.config) || !applies(key, resolved.config.model.family)) continue;
    const auto gives_it = [&](const Override& change) {
      return change.assignment.starts_with(std::string(key.path) + "=");
    };
    if (std::any_of(overrides.begin(), overrides.end(), gives_it)) continue;
    const Problem problem = key.write(resolved.config, to_raw(key.read(Config())), key.limits);
    TANDEM_CHECK(!problem, "{}: its default is refused", key.path);
    if (const auto given = resolved.origins.find(key.path); given != resolved.origins.end())
      resolved.origins.erase(given);
  }
}

// Of the keys that say how long a run is, one that --set gives takes the place of another in the file.
void forget_other_lengths(ResolvedConfig& resolved) {
  constexpr std::string_view kLengths[] = {"train.steps", "train.tokens", "train.epochs"};
  const auto by_flag = [&](std::string_view key) { return resolved.origin(key).starts_with("--"); };
  if (std::none_of(std::begin(kLengths), std::end(kLengths), by_flag)) return;
  for (std::string_view path : kLengths) {
    const auto given = resolved.origins.find(path);
    if (given == resolved.origins.end() || by_flag(path)) continue;
    const Key& key = *find_key(path);
    key.write(resolved.config, to_raw(key.read(Config())), key.limits);
    resolved.origins.erase(given);
  }
}

ConfigError too_large(const std::string& file, size_t bytes) {
  return ConfigError("{}: a config has at most {}, found {}; is it another file?", file,
                     format_bytes(kMaxConfigBytes), format_bytes(static_cast<int64_t>(bytes)));
}

// Of the configs beside the path and of those in configs/, the one that was probably meant.
std::string missing_file(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const fs::path beside = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> found;
  for (const fs::path& folder : {beside, fs::path("configs")}) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      const fs::path& file = entry.path();
      if (file.extension() == ".yaml" || file.extension() == ".yml")
        found.push_back((folder == "." ? file.filename() : file).string());
    }
  }
  std::sort(found.begin(), found.end());
  const std::string stem = path.stem().string();
  const std::string* best = nullptr;
  int least = 0;
  for (const std::string& file : found) {
    const std::string name = fs::path(file).stem().string();
    const int distance = slip(stem, name);
    if (!is_likely(stem, name, distance) || (best != nullptr && distance >= least)) continue;
    best = &file;
    least = distance;
  }
  std::error_code error;
  const std::string where = path.is_absolute() ? "" : fmt::format(" in {}", fs::current_path(error).string());
  if (best != nullptr) return fmt::format("no such file{}; did you mean {}?", where, *best);
  return fmt::format("no such file{}; expected a YAML config, such as configs/quickstart.yaml", where);
}

}  // namespace

std::string_view ResolvedConfig::origin(std::string_view key) const {
  const auto found = origins.find(key);
  return found == origins.end() ? std::string_view("default") : found->second;
}

ResolvedConfig parse_config(const std::string& yaml, const std::string& file,
                            std::span<const Override> overrides, int num_ranks, const FillModel& fill) {
  if (yaml.size() > kMaxConfigBytes) throw too_large(file, yaml.size());
  if (!is_utf8(yaml) || yaml.find('\0') != std::string::npos)
    throw ConfigError("{}: not a text file in UTF-8: expected a YAML config", file);
  ResolvedConfig resolved;
  YamlReader(resolved, file).read_text(yaml);
  const TrainConfig in_file = resolved.config.train;
  for (const Override& change : overrides) apply(resolved, change);
  const TrainConfig& train = resolved.config.train;
  if (train.optimizer != in_file.optimizer || train.schedule != in_file.schedule)
    forget_other_rules(resolved, overrides);
  forget_other_lengths(resolved);
  if (!resolved.origins.contains("name")) {
    resolved.config.name = std::filesystem::path(file).stem().string();
    resolved.origins["name"] =
        fmt::format("derived from {}", std::filesystem::path(file).filename().string());
  }
  if (fill && !resolved.config.model.from.empty()) fill(resolved);
  derive(resolved, num_ranks);
  validate(resolved);
  check_supported(resolved);
  return resolved;
}

ResolvedConfig load_config(const std::filesystem::path& path, std::span<const Override> overrides,
                           int num_ranks, const FillModel& fill) {
  if (!is_there(path)) {
    throw ConfigError("{}: {}", shortened(path.string()), missing_file(path));
  }
  if (std::filesystem::is_directory(path)) {
    throw ConfigError("{}: is a directory; expected a YAML config, such as configs/quickstart.yaml",
                      path.string());
  }
  if (std::error_code error; std::filesystem::is_regular_file(path, error)) {
    const auto bytes = std::filesystem::file_size(path);
    if (bytes > kMaxConfigBytes) throw too_large(path.string(), bytes);
  }
  return parse_config(read_text(path), path.string(), overrides, num_ranks, fill);
}

Config config_from_json(const nlohmann::json& json, const std::string& source) {
  if (!json.is_object()) throw ConfigError("{}: expected an object of config keys", source);
  ResolvedConfig resolved;
  read_json(resolved, json, "", source);
  forget_other_rules(resolved);
  derive(resolved);
  validate(resolved);
  return resolved.config;
}

}  // namespace tandem
