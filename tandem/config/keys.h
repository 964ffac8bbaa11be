// The one table of config keys. Parsing, --set, explain, YAML, JSON and the docs page all walk it, so a
// new setting is a member in config.h and a row in keys.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/config/values.h"

namespace tandem {

struct Key {
  std::string_view path;  // "train.micro_batch"
  std::string doc;
  unsigned families;    // bit per Family that reads the key
  unsigned optimizers;  // bit per OptimizerKind that does
  unsigned schedules;   // bit per ScheduleKind that does
  Limits limits;
  std::string expects;  // what a value looks like
  Problem (*write)(Config& config, const RawValue& raw, const Limits& limits);
  nlohmann::json (*read)(const Config& config);
};

const std::vector<Key>& keys();

const Key* find_key(std::string_view path);  // nullptr when there is none
// The first key under a section ("train"); empty when `path` is no section.
std::string_view first_key_under(std::string_view path);
inline bool is_section(std::string_view path) { return !first_key_under(path).empty(); }

// The key or section a user probably meant; `steps` finds `train.steps`, `hidden_size` finds `model.width`.
// Empty where none is likely.
std::string_view nearest_key(std::string_view path);

// The keys whose last word, or whose name in other programs, is `name`: of a flag `--lr`.
std::vector<std::string_view> keys_named(std::string_view name);

bool applies(const Key& key, Family family);
bool applies(const Key& key, OptimizerKind optimizer);
bool applies(const Key& key, ScheduleKind schedule);
bool applies(const Key& key, const Config& config);  // to its family, its optimizer and its schedule

}  // namespace tandem
