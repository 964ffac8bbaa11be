#include "tandem/checkpoint/manifest.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/checkpoint/boxes.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/manifest_json.h"
#include "tandem/checkpoint/reader.h"

namespace tandem {
namespace {

void check_tensor(const TensorEntry& tensor, const Manifest& manifest,
                  const std::map<std::string_view, int64_t>& file_bytes, const std::string& origin) {
  const Box whole = whole_box(tensor.shape);
  int64_t covered = 0;
  std::vector<Box> boxes;
  for (const Shard& shard : tensor.shards) {
    const auto file = file_bytes.find(shard.file);
    if (!contains(whole, shard.box) || shard.bytes != shard.box.elems() * dtype_bytes(tensor.dtype) ||
        file == file_bytes.end() || shard.offset < 0 || shard.offset > file->second - shard.bytes) {
      throw DataError("{}: tensor '{}': a shard lies outside its file or its tensor", origin, tensor.name);
    }
    const int64_t block = manifest.block_bytes(shard);
    const int64_t num_blocks = std::max<int64_t>(1, (shard.bytes + block - 1) / block);
    if (static_cast<int64_t>(shard.digests.size()) != num_blocks) {
      throw DataError("{}: tensor '{}': expected {} digests of a shard, found {}", origin, tensor.name,
                      num_blocks, shard.digests.size());
    }
    covered += shard.box.elems();
    boxes.push_back(shard.box);
  }
  if (const auto pair = find_overlap(std::move(boxes))) {
    throw DataError("{}: tensor '{}': expected each element once, found overlapping shards: {} and {}",
                    origin, tensor.name, to_string(pair->first), to_string(pair->second));
  }
  if (covered != tensor.shape.elems()) {
    throw DataError("{}: tensor '{}': expected shards of {} elements in all, found {}", origin, tensor.name,
                    tensor.shape.elems(), covered);
  }
}

}  // namespace

const TensorEntry* Manifest::find(std::string_view name) const {
  for (const TensorEntry& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

int64_t Manifest::total_bytes() const {
  int64_t bytes = 0;
  for (const TensorEntry& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

int64_t Manifest::num_shards() const {
  int64_t count = 0;
  for (const TensorEntry& tensor : tensors) count += static_cast<int64_t>(tensor.shards.size());
  return count;
}

int64_t Manifest::block_bytes(const Shard& shard) const {
  return digest_block > 0 ? digest_block : std::max<int64_t>(1, shard.bytes);
}

void check_shards(const Manifest& manifest, const std::string& origin) {
  std::map<std::string_view, int64_t> file_bytes;
  for (const CheckpointFile& file : manifest.files) {
    if (file.name.empty() || file.name.find('/') != std::string::npos) {
      throw DataError("{}: file '{}': expected a plain file name beside the manifest", origin, file.name);
    }
    file_bytes[file.name] = file.bytes;
  }
  int64_t total = 0;
  for (const TensorEntry& tensor : manifest.tensors) {
    check_tensor(tensor, manifest, file_bytes, origin);
    if (__builtin_add_overflow(total, tensor.bytes(), &total))
      throw DataError("{}: more bytes of tensors than 64 bits count", origin);
  }
}

std::string render_manifest(const Manifest& manifest) { return seal(to_json(manifest)); }

Manifest parse_manifest(std::string_view text, const std::string& origin) {
  const nlohmann::json content = unseal(text, "manifest", origin);
  Manifest manifest;
  try {
    manifest = to_manifest(content);
  } catch (const nlohmann::json::exception& error) {
    throw DataError("{}: not a manifest of version {}: {}", origin, content["version"].dump(), error.what());
  } catch (const Error& error) {
    throw DataError("{}: {}", origin, error.what());
  }
  check_shards(manifest, origin);
  return manifest;
}

std::unique_ptr<ObjectReader> Manifest::open(const std::string& file) const {
  TANDEM_CHECK(store.has_value(), "a manifest that was not read from a store");
  return (*store)->open(fmt::format("{}/{}", name, file));
}

bool Manifest::is_far() const { return store.has_value() && (*store)->is_far(); }

void check_files(const Manifest& manifest, const OpenFile& open) {
  for (const CheckpointFile& file : manifest.files) {
    std::unique_ptr<ObjectReader> object;
    int64_t bytes = 0;
    try {
      object = open(file.name);
      bytes = object->size();
    } catch (const MissingObject& error) {
      throw DataError("{}: the checkpoint is not whole without it", error.what());
    } catch (const IoError& error) {
      if (manifest.is_far()) throw;
      throw DataError("{}: the checkpoint is not whole without it", error.what());
    }
    if (bytes != file.bytes) {
      throw DataError("{}: expected {} bytes, found {}: truncated or replaced", object->description(),
                      file.bytes, bytes);
    }
  }
}

Manifest read_manifest(const StoreRef& store, const std::string& name) {
  const std::string bundle = store->alias(name).value_or(name);
  const std::string file = fmt::format("{}/{}", bundle, kManifestFile);
  const std::string origin = store->description(file);
  if (!store->exists(file)) {
    throw DataError("{}: no such file; expected a checkpoint directory such as RUN/checkpoints/step-00000100",
                    origin);
  }
  Manifest manifest = parse_manifest(read_text(*store->open(file)), origin);
  manifest.store = store;
  manifest.name = bundle;
  manifest.directory = store->description(bundle);
  check_files(manifest, [&](const std::string& data) { return manifest.open(data); });
  return manifest;
}

namespace {

Manifest read_newest(const StoreRef& store) {
  Latest latest = find_latest(store, Check::Sizes);
  if (latest.manifest) return std::move(*latest.manifest);
  throw DataError("{}: holds no {}checkpoint", store->description(""),
                  latest.skipped.empty() ? "" : fmt::format("good ({}) ", latest.skipped.front().reason));
}

// s3://bucket/prefix is the newest there; s3://bucket/prefix/step-00000100, or /latest, that one.
Manifest read_remote(const std::string& address) {
  auto [place, name] = split_address(address);
  if (name == kManifestFile) std::tie(place, name) = split_address(place);
  if (is_checkpoint_name(name) || name == kLatest || name == kBest)
    return read_manifest(open_store(place), name);
  return read_newest(open_store(address));
}

}  // namespace

Manifest read_manifest(const std::filesystem::path& path) {
  if (is_remote(path.string())) return read_remote(path.string());
  std::filesystem::path directory = path.filename() == kManifestFile ? path.parent_path() : path;
  if (!directory.has_filename()) directory = directory.parent_path();  // ended with a slash
  if (!is_there(directory / kManifestFile) && !list_checkpoints(directory).empty())
    return read_newest(directory);
  return read_manifest(directory.parent_path(), directory.filename().string());
}

}  // namespace tandem
