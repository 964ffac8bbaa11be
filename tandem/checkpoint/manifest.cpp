#include "tandem/checkpoint/manifest.h"

#include <cmath>
#include <limits>
#include <map>
#include <span>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem {
namespace {

using nlohmann::json;

// Objects keep their keys sorted and floats their shortest digits, so equal content gives equal text.
// Text from outside (config, hostname) may not be UTF-8; it must not make a save fail.
std::string dump(const json& value) {
  return value.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string content_digest(const json& content) {
  const std::string text = dump(content);
  return digest_hex(std::as_bytes(std::span(text)));
}

json to_json(const Shard& shard) {
  return {{"file", shard.file},   {"offset", shard.offset}, {"bytes", shard.bytes},
          {"begin", shard.begin}, {"end", shard.end},       {"digest", shard.digest}};
}

Shard to_shard(const json& value) {
  return {value.at("file"),  value.at("offset"), value.at("bytes"),
          value.at("begin"), value.at("end"),    value.at("digest")};
}

json to_json(const TensorEntry& tensor) {
  json shards = json::array();
  for (const Shard& shard : tensor.shards) shards.push_back(to_json(shard));
  return {{"name", tensor.name},
          {"dtype", dtype_name(tensor.dtype)},
          {"shape", tensor.shape.dims()},
          {"digest", tensor.digest},
          {"shards", std::move(shards)}};
}

TensorEntry to_tensor(const json& value) {
  TensorEntry tensor;
  tensor.name = value.at("name");
  tensor.dtype = parse_dtype(value.at("dtype").get_ref<const std::string&>());
  tensor.shape = Shape(value.at("shape").get<std::vector<int64_t>>());
  tensor.digest = value.at("digest");
  for (const json& shard : value.at("shards")) tensor.shards.push_back(to_shard(shard));
  return tensor;
}

json to_json(const Manifest& manifest) {
  const CheckpointMeta& meta = manifest.meta;
  json files = json::array(), tensors = json::array();
  for (const CheckpointFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  }
  for (const TensorEntry& tensor : manifest.tensors) tensors.push_back(to_json(tensor));
  return {
      {"version", kManifestVersion},
      {"step", meta.step},
      {"epoch", meta.epoch},
      {"samples", meta.samples},
      {"batch", meta.batch},
      {"loss", std::isfinite(meta.loss) ? json(meta.loss) : json()},
      {"mesh", {{"data", meta.mesh.data}, {"tensor", meta.mesh.tensor}, {"pipeline", meta.mesh.pipeline}}},
      {"metrics", meta.metrics},
      {"config", meta.config},
      {"scalars", meta.scalars},
      {"sequence", manifest.sequence},
      {"hostname", manifest.hostname},
      {"hardware", manifest.hardware},
      {"time", manifest.time},
      {"files", std::move(files)},
      {"tensors", std::move(tensors)}};
}

Manifest to_manifest(const json& value) {
  Manifest manifest;
  CheckpointMeta& meta = manifest.meta;
  meta.step = value.at("step");
  meta.epoch = value.at("epoch");
  meta.samples = value.at("samples");
  meta.batch = value.at("batch");
  meta.loss =
      value.at("loss").is_null() ? std::numeric_limits<double>::quiet_NaN() : value.at("loss").get<double>();
  const json& mesh = value.at("mesh");
  meta.mesh = {mesh.at("data"), mesh.at("tensor"), mesh.at("pipeline")};
  meta.metrics = value.at("metrics");
  meta.config = value.at("config");
  meta.scalars = value.at("scalars");
  manifest.sequence = value.at("sequence");
  manifest.hostname = value.at("hostname");
  manifest.hardware = value.at("hardware");
  manifest.time = value.at("time");
  for (const json& file : value.at("files")) manifest.files.push_back({file.at("name"), file.at("bytes")});
  for (const json& tensor : value.at("tensors")) manifest.tensors.push_back(to_tensor(tensor));
  return manifest;
}

// The elements of a shard, or -1 when its ranges do not lie in the tensor.
int64_t shard_elems(const Shard& shard, const Shape& shape) {
  const auto rank = static_cast<size_t>(shape.rank());
  if (shard.begin.size() != rank || shard.end.size() != rank) return -1;
  int64_t elems = 1;
  for (size_t dim = 0; dim < rank; ++dim) {
    if (shard.begin[dim] < 0 || shard.end[dim] < shard.begin[dim] || shard.end[dim] > shape.dims()[dim])
      return -1;
    elems *= shard.end[dim] - shard.begin[dim];
  }
  return elems;
}

void check_shards(const Manifest& manifest, const std::string& origin) {
  std::map<std::string_view, int64_t> file_bytes;
  for (const CheckpointFile& file : manifest.files) {
    if (file.name.empty() || file.name.find('/') != std::string::npos) {
      throw DataError("{}: file '{}': expected a plain file name beside the manifest", origin, file.name);
    }
    file_bytes[file.name] = file.bytes;
  }
  for (const TensorEntry& tensor : manifest.tensors) {
    int64_t covered = 0;
    for (const Shard& shard : tensor.shards) {
      const int64_t elems = shard_elems(shard, tensor.shape);
      const auto file = file_bytes.find(shard.file);
      if (elems < 0 || shard.bytes != elems * dtype_bytes(tensor.dtype) || file == file_bytes.end() ||
          shard.offset < 0 || shard.offset > file->second - shard.bytes) {
        throw DataError("{}: tensor '{}': a shard lies outside its file or its tensor", origin, tensor.name);
      }
      covered += elems;
    }
    if (covered != tensor.shape.elems()) {
      throw DataError("{}: tensor '{}': expected shards of {} elements in all, found {}", origin, tensor.name,
                      tensor.shape.elems(), covered);
    }
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

std::string render_manifest(const Manifest& manifest) {
  json content = to_json(manifest);
  content["digest"] = content_digest(content);
  return dump(content);
}

Manifest parse_manifest(std::string_view text, const std::string& origin) {
  json content = json::parse(text, nullptr, false);
  if (!content.is_object() || !content.contains("version") || !content.contains("digest")) {
    throw DataError("{}: expected a Tandem checkpoint manifest, found damaged or other text", origin);
  }
  if (content["version"] != kManifestVersion) {
    throw DataError("{}: expected format version {}, found {}; read it with the Tandem that wrote it", origin,
                    kManifestVersion, content["version"].dump());
  }
  const json found = content["digest"];
  content.erase("digest");
  const std::string expected = content_digest(content);
  content["digest"] = expected;
  // Comparing the text as well finds damage that parsing forgives, such as a changed space.
  if (found != expected || dump(content) != text) {
    throw DataError("{}: damaged or edited: expected content with digest {}, found {}", origin, found.dump(),
                    expected);
  }
  try {
    Manifest manifest = to_manifest(content);
    check_shards(manifest, origin);
    return manifest;
  } catch (const json::exception& error) {
    throw DataError("{}: not a manifest of version {}: {}", origin, kManifestVersion, error.what());
  } catch (const ConfigError& error) {
    throw DataError("{}: {}", origin, error.what());
  }
}

Manifest read_manifest(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  fs::path directory = path.filename() == kManifestFile ? path.parent_path() : path;
  if (fs::is_symlink(directory)) directory = directory.parent_path() / fs::read_symlink(directory);  // latest
  const fs::path file = directory / kManifestFile;
  std::error_code error;
  if (!fs::exists(file, error)) {
    throw DataError("{}: no such file; expected a checkpoint directory such as RUN/checkpoints/step-00000100",
                    file.string());
  }
  Manifest manifest = parse_manifest(read_text(file), file.string());
  for (const CheckpointFile& part : manifest.files) {
    const fs::path part_path = directory / part.name;
    const auto bytes = fs::file_size(part_path, error);
    if (error)
      throw DataError("{}: file of the checkpoint is missing: {}", part_path.string(), error.message());
    if (static_cast<int64_t>(bytes) != part.bytes) {
      throw DataError("{}: expected {} bytes, found {}: truncated or replaced", part_path.string(),
                      part.bytes, bytes);
    }
  }
  manifest.directory = directory;
  return manifest;
}

}  // namespace tandem
