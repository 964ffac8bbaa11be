#include "tandem/hub/kept_files.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/hub/hub_dtype.h"
#include "tandem/hub/strict_json.h"

namespace tandem::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kStoredAs = "stored_as.json";
constexpr std::string_view kSmallFiles[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "chat_template.json",
    "preprocessor_config.json",
};

bool is_small_file(const std::string& name) {
  return std::find(std::begin(kSmallFiles), std::end(kSmallFiles), name) != std::end(kSmallFiles) ||
         name.ends_with(".jinja") || name.ends_with(".tiktoken");
}

}  // namespace

fs::path kept_folder_of(const fs::path& checkpoint) {
  std::error_code ignored;
  fs::path whole = fs::canonical(checkpoint, ignored);
  if (whole.filename() == "manifest.json") whole = whole.parent_path();
  return whole.parent_path().parent_path() / kKeptFolder;
}

std::vector<std::string> small_files(const fs::path& directory) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (is_small_file(name) && entry.is_regular_file()) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  if (is_there(directory / kConfig)) names.emplace_back(kConfig);
  return names;
}

void keep_files(const fs::path& directory, const fs::path& folder) {
  make_directories(folder);
  if (is_there(directory / kStoredAs)) write_atomically(folder / kStoredAs, read_text(directory / kStoredAs));
  for (const std::string& name : small_files(directory))
    write_atomically(folder / name, read_text(directory / name));
}

void keep_stored_as(const HubWeights& weights, const fs::path& folder) {
  make_directories(folder);
  nlohmann::json json = {{"prefix", weights.prefix()}, {"dtypes", nlohmann::json::object()}};
  for (const ParamSources& param : weights.params()) {
    for (const Source& part : param.parts)
      json["dtypes"][part.tensor] = weights.tensors().find(part.tensor)->dtype;
  }
  write_atomically(folder / kStoredAs, json.dump(1) + "\n");
}

std::optional<StoredAs> read_stored_as(const fs::path& folder) {
  const fs::path file = folder / kStoredAs;
  if (!is_there(file)) return std::nullopt;
  const std::string origin = file.string();
  const nlohmann::json json = parse_strictly(read_text(file), origin);
  StoredAs stored;
  try {
    stored.prefix = json.at("prefix").get<std::string>();
    for (const auto& [name, type] : json.at("dtypes").items()) {
      const auto dtype = weight_dtype(type.get<std::string>());
      if (!dtype) throw DataError("{}: tensor '{}' has no weight's type", origin, name);
      stored.dtypes[name] = *dtype;
    }
  } catch (const nlohmann::json::exception&) {
    throw DataError("{}: is not what a run keeps there; remove it to export in one type", origin);
  }
  return stored;
}

}  // namespace tandem::hub
