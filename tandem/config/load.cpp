#include "tandem/config/load.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/config/derive.h"
#include "tandem/config/keys.h"
#include "tandem/config/supported.h"
#include "tandem/config/validate.h"

namespace tandem {
namespace {

std::string join_path(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

// "config.yaml:12: train" or "--set train": the start of a message before a value has an origin.
std::string place(const std::string& origin, const std::string& path) {
  return fmt::format("{}{} {}", origin, origin.starts_with("--") ? "" : ":", path);
}

void assign(ResolvedConfig& resolved, const std::string& path, const RawValue& raw,
            const std::string& origin) {
  const Key* key = find_key(path);
  if (key == nullptr && is_section(path)) {
    throw ConfigError("{}: expected keys under it, such as {}, found a value", place(origin, path),
                      first_key_under(path));
  }
  if (key == nullptr) {
    throw ConfigError("{}: no such key; did you mean {}?", place(origin, path), nearest_key(path));
  }
  if (const Problem problem = key->write(resolved.config, raw, key->limits)) {
    throw ConfigError("{}: {}", place(origin, path), *problem);
  }
  resolved.origins[path] = origin;
}

// Counts documents and notes where the last one begins.
class DocumentCounter : public YAML::EventHandler {
 public:
  int count() const { return count_; }
  const YAML::Mark& last() const { return last_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    ++count_;
    last_ = mark;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
  }
  void OnMapEnd() override {}

 private:
  int count_ = 0;
  YAML::Mark last_;
};

// The line of what stands behind a text's one document, which YAML::Load ignores: another document, or junk.
// It asks for no third: from a stray comma on, yaml-cpp has documents without end.
std::optional<int> line_of_second(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentCounter documents;
  while (documents.count() < 2 && parser.HandleNextDocument(documents)) {
  }
  return documents.count() < 2 ? std::nullopt : std::optional(documents.last().line + 1);
}

class YamlReader {
 public:
  YamlReader(ResolvedConfig& resolved, const std::string& file) : resolved_(resolved), file_(file) {}

  void read_text(const std::string& text) {
    try {
      if (const auto line = line_of_second(text)) {
        throw ConfigError(
            "{}:{}: expected one YAML document, found more behind it; remove it, or split the file", file_,
            *line);
      }
      const YAML::Node document = YAML::Load(text);
      if (!document.IsNull()) read_map(document, "");
    } catch (const YAML::Exception& error) {
      throw ConfigError("{}:{}: not valid YAML: {}", file_, error.mark.line + 1, error.msg);
    }
  }

  // A value, as --set gives it: `3`, `[2, 2]`. Text that is no list is taken as it stands.
  static RawValue read_value(const std::string& text, const std::string& where) {
    if (!text.starts_with('[')) return {{text}, false};
    const auto refusal = [&](const std::string& why) {
      return ConfigError("{}: expected a list such as [2, 2], found {} ({})", where, in_quotes(text), why);
    };
    try {
      const YAML::Node list = YAML::Load(text);
      if (line_of_second(text) || !list.IsSequence()) throw refusal("more than a list");
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
      throw ConfigError("{}: expected `key: value` pairs{}", origin(node),
                        prefix.empty() ? "" : fmt::format(" under '{}'", prefix));
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
      if (!item.IsScalar())
        throw ConfigError("{}: expected a plain list, found lists or keys inside it", where);
      raw.items.push_back(item.Scalar());
    }
    return raw;
  }

  ResolvedConfig& resolved_;
  const std::string& file_;
};

void apply(ResolvedConfig& resolved, const Override& change) {
  const size_t equals = change.assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw ConfigError("{} {}: expected key=value, such as {} train.steps=100", change.source,
                      change.assignment, change.source);
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
    for (const nlohmann::json& item : value) raw.items.push_back(text(item));
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

}  // namespace

std::string_view ResolvedConfig::origin(std::string_view key) const {
  const auto found = origins.find(key);
  return found == origins.end() ? std::string_view("default") : found->second;
}

ResolvedConfig parse_config(const std::string& yaml, const std::string& file,
                            std::span<const Override> overrides, int num_ranks) {
  ResolvedConfig resolved;
  YamlReader(resolved, file).read_text(yaml);
  for (const Override& change : overrides) apply(resolved, change);
  if (!resolved.origins.contains("name")) {
    resolved.config.name = std::filesystem::path(file).stem().string();
    resolved.origins["name"] =
        fmt::format("derived from {}", std::filesystem::path(file).filename().string());
  }
  derive(resolved, num_ranks);
  validate(resolved);
  check_supported(resolved);
  return resolved;
}

ResolvedConfig load_config(const std::filesystem::path& path, std::span<const Override> overrides,
                           int num_ranks) {
  if (!is_there(path)) {
    throw ConfigError("{}: no such file; expected a YAML config, such as configs/quickstart.yaml",
                      path.string());
  }
  if (std::filesystem::is_directory(path)) {
    throw ConfigError("{}: is a directory; expected a YAML config, such as configs/quickstart.yaml",
                      path.string());
  }
  return parse_config(read_text(path), path.string(), overrides, num_ranks);
}

Config config_from_json(const nlohmann::json& json, const std::string& source) {
  if (!json.is_object()) throw ConfigError("{}: expected an object of config keys", source);
  ResolvedConfig resolved;
  read_json(resolved, json, "", source);
  derive(resolved);
  validate(resolved);
  return resolved.config;
}

}  // namespace tandem
