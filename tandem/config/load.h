// From a YAML file and overrides to a valid Config that remembers where each value came from.
// Whatever is wrong is one ConfigError of one line that starts with `file:line` or the flag.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/config/config.h"

namespace tandem {

// `key.path=value` and the flag that gave it: {"train.steps=10"} or {"device=cpu", "--device"}.
struct Override {
  std::string assignment;
  std::string source = "--set";
};

struct ResolvedConfig {
  Config config;
  std::map<std::string, std::string, std::less<>> origins;  // of every key that is not at its default

  std::vector<std::string> notes;  // for the user: a sentence each

  // "default", "config.yaml:12", "--set" or "derived from model.width"
  std::string_view origin(std::string_view key) const;
};

// Sets the keys that model.from stands for (hub/fill_model.h); called where that is given, before keys are
// derived.
using FillModel = std::function<void(ResolvedConfig& resolved)>;

// Reads, overrides (the last one of a key wins), derives, validates, and refuses what is not supported.
// `num_ranks` have been started: a strategy for several takes those that the other axes leave it, unless
// parallel.data says otherwise.
ResolvedConfig load_config(const std::filesystem::path& path, std::span<const Override> overrides = {},
                           int num_ranks = 1, const FillModel& fill = {});

// The same for text that was read already; `file` names it in messages.
ResolvedConfig parse_config(const std::string& yaml, const std::string& file,
                            std::span<const Override> overrides = {}, int num_ranks = 1,
                            const FillModel& fill = {});

// The Config that to_json wrote, for instance into a checkpoint; `source` names it in messages.
Config config_from_json(const nlohmann::json& json, const std::string& source);

}  // namespace tandem
