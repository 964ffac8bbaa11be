#include "tandem/hub/tensor_set.h"

#include <set>

#include "tandem/base/error.h"
#include "tandem/base/utf8.h"
#include "tandem/hub/strict_json.h"

namespace tandem::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFile = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr int64_t kMostIndexBytes = 100'000'000;

// A shard lies beside its index: a name that leads elsewhere is nobody's honest index.
void check_shard_name(const std::string& name, const std::string& origin) {
  if (name.empty() || name == "." || name == ".." ||
      name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)
    throw DataError("{}: weight_map names '{}', which is no file beside it", origin, printable(name));
}

std::string hint_of(const fs::path& directory) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    const std::string suffix = entry.path().extension().string();
    if (suffix == ".bin" || suffix == ".pt" || suffix == ".pth")
      return fmt::format("; {} holds Python objects: save it anew with safe_serialization",
                         entry.path().filename().string());
  }
  return "";
}

}  // namespace

bool holds_weights(const fs::path& directory) {
  return is_there(directory / kFile) || is_there(directory / kIndex);
}

TensorSet::TensorSet(const fs::path& path) : path_(path) {
  if (!is_there(path)) throw DataError("{}: no such file or directory", path.string());
  if (!fs::is_directory(path)) {
    add(path);
  } else if (is_there(path / kIndex)) {
    read_index(path / kIndex);
  } else if (is_there(path / kFile)) {
    add(path / kFile);
  } else {
    throw DataError("{}: holds no weights: expected {} or {}{}", path.string(), kFile, kIndex, hint_of(path));
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const SafeTensor& tensor : files_[i].tensors()) {
      const auto [earlier, fresh] = by_name_.emplace(tensor.name, &tensor);
      if (!fresh) {
        throw DataError("{}: tensor '{}' is in {} too", files_[i].path().string(), printable(tensor.name),
                        file_of(*earlier->second).filename().string());
      }
      file_of_[&tensor] = i;
    }
  }
}

void TensorSet::add(const fs::path& file) { files_.emplace_back(file); }

void TensorSet::read_index(const fs::path& index) {
  const std::string origin = index.string();
  const nlohmann::json json = parse_strictly(read_text(index, kMostIndexBytes), origin);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object())
    throw DataError("{}: expected weight_map, an object of tensors and their files", origin);
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string())
      throw DataError("{}: weight_map has no file's name for tensor '{}'", origin, printable(tensor));
    check_shard_name(file.get<std::string>(), origin);
    names.insert(file.get<std::string>());
  }
  files_.reserve(names.size());
  for (const std::string& name : names) {
    const fs::path path = index.parent_path() / name;
    if (!is_there(path)) throw DataError("{}: names {}, which is not there", origin, printable(name));
    add(path);
    size_t expected = 0;
    for (const auto& [tensor, file] : map->items()) {
      if (file.get_ref<const std::string&>() == name) ++expected;
    }
    for (const SafeTensor& tensor : files_.back().tensors()) {
      const auto said = map->find(tensor.name);
      if (said == map->end())
        throw DataError("{}: holds tensor '{}', which {} does not name", path.string(),
                        printable(tensor.name), index.filename().string());
      if (said->get_ref<const std::string&>() != name)
        throw DataError("{}: holds tensor '{}', which {} says is in {}", path.string(),
                        printable(tensor.name), index.filename().string(), said->get<std::string>());
      --expected;
    }
    if (expected == 0) continue;
    for (const auto& [tensor, file] : map->items()) {
      const auto is_it = [&](const SafeTensor& found) { return found.name == tensor; };
      const auto& found = files_.back().tensors();
      if (file.get_ref<const std::string&>() == name && std::none_of(found.begin(), found.end(), is_it))
        throw DataError("{}: has no tensor '{}', which {} says is there", path.string(), printable(tensor),
                        index.filename().string());
    }
  }
}

const SafeTensor* TensorSet::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

const fs::path& TensorSet::file_of(const SafeTensor& tensor) const {
  return files_[file_of_.at(&tensor)].path();
}

int64_t TensorSet::total_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : by_name_) bytes += static_cast<int64_t>(tensor->bytes.size());
  return bytes;
}

}  // namespace tandem::hub
