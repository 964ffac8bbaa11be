#include "tandem/checkpoint/manifest_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/json_text.h"

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
  const Box& box = shard.box;
  return {{"file", shard.file},
          {"offset", shard.offset},
          {"bytes", shard.bytes},
          {"begin", {box.row_begin, box.col_begin}},
          {"end", {box.row_end, box.col_end}},
          {"digests", shard.digests}};
}

// Version 1 has an index range for each dim. Those of dims after the first are one range of columns where all
// after the first one longer than 1 are whole; it never wrote others.
Box box_of_ranges(const std::vector<int64_t>& begin, const std::vector<int64_t>& end, const Shape& shape) {
  const auto rank = static_cast<size_t>(shape.rank());
  if (begin.size() != rank || end.size() != rank)
    throw DataError("a shard with index ranges of another number of dims than its tensor");
  if (rank == 0) return {0, 1, 0, 1};
  Box box{begin[0], end[0], 0, 1};
  int64_t first_column = 0;
  bool may_cut = true;
  for (size_t dim = 1; dim < rank; ++dim) {
    const int64_t extent = end[dim] - begin[dim], dims = shape.dims()[dim];
    if (begin[dim] < 0 || extent < 0 || end[dim] > dims || (extent != dims && !may_cut))
      throw DataError("a shard whose index ranges are not one range of columns");
    if (extent != 1) may_cut = false;
    first_column = first_column * dims + begin[dim];
    box.col_end *= extent;
  }
  box.col_begin = first_column;
  box.col_end += first_column;
  return box;
}

Shard to_shard(const json& value, const Shape& shape, int version) {
  Shard shard{value.at("file"), value.at("offset"), value.at("bytes"), {}, {}};
  const auto begin = value.at("begin").get<std::vector<int64_t>>();
  const auto end = value.at("end").get<std::vector<int64_t>>();
  if (version == 1) {
    shard.box = box_of_ranges(begin, end, shape);
    shard.digests = {value.at("digest")};
  } else {
    if (begin.size() != 2 || end.size() != 2)
      throw DataError("a shard that is not [row, column] to [row, column]");
    shard.box = {begin[0], end[0], begin[1], end[1]};
    shard.digests = value.at("digests").get<std::vector<std::string>>();
  }
  return shard;
}

}  // namespace

std::string seal(json content) {
  content["version"] = kManifestVersion;
  content["digest"] = content_digest(content);
  return dump(content);
}

json unseal(std::string_view text, std::string_view what, const std::string& origin) {
  check_json_depth(text, origin);
  json content = json::parse(text, nullptr, false);
  if (!content.is_object() || !content.contains("version") || !content.contains("digest")) {
    throw DataError("{}: expected a Tandem checkpoint {}, found damaged or other text", origin, what);
  }
  const json& version = content["version"];
  if (!version.is_number_integer() || version < 1 || version > kManifestVersion) {
    throw DataError(
        "{}: expected format version {} or older, found {}; read it with the Tandem that wrote it", origin,
        kManifestVersion, version.dump());
  }
  const json found = content["digest"];
  content.erase("digest");
  const std::string expected = content_digest(content);
  content["digest"] = expected;
  if (found != expected) {
    throw DataError("{}: damaged or edited: expected content with digest {}, found {}", origin, found.dump(),
                    expected);
  }
  // This finds damage that parsing forgives, such as a changed space.
  if (const std::string written = dump(content); written != text) {
    const auto where = std::mismatch(written.begin(), written.end(), text.begin(), text.end()).first;
    throw DataError(
        "{}: damaged or edited: its content is right, but not its text, from byte {} on: expected {} "
        "bytes, found {}",
        origin, where - written.begin(), written.size(), text.size());
  }
  return content;
}

int64_t whole_number(const json& object, const char* key, int64_t least, int64_t most) {
  const json& value = object.at(key);
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(most));
  if (!fits || value.get<int64_t>() < least || value.get<int64_t>() > most) {
    throw DataError("'{}': expected a whole number of {} to {}, found {}", key, least, most, value.dump());
  }
  return value.get<int64_t>();
}

json to_json(const std::vector<CheckpointFile>& files) {
  json list = json::array();
  for (const CheckpointFile& file : files) list.push_back({{"name", file.name}, {"bytes", file.bytes}});
  return list;
}

std::vector<CheckpointFile> to_files(const json& value) {
  std::vector<CheckpointFile> files;
  for (const json& file : value) files.push_back({file.at("name"), file.at("bytes")});
  return files;
}

json to_json(const std::vector<TensorEntry>& tensors) {
  json list = json::array();
  for (const TensorEntry& tensor : tensors) {
    json shards = json::array();
    for (const Shard& shard : tensor.shards) shards.push_back(to_json(shard));
    list.push_back({{"name", tensor.name},
                    {"dtype", dtype_name(tensor.dtype)},
                    {"shape", tensor.shape.dims()},
                    {"digest", tensor.digest},
                    {"shards", std::move(shards)}});
  }
  return list;
}

std::vector<TensorEntry> to_tensors(const json& value, int version) {
  std::vector<TensorEntry> tensors;
  for (const json& item : value) {
    TensorEntry& tensor = tensors.emplace_back();
    tensor.name = item.at("name");
    tensor.dtype = parse_dtype(item.at("dtype").get_ref<const std::string&>());
    tensor.shape = Shape(item.at("shape").get<std::vector<int64_t>>());
    tensor.digest = item.at("digest");
    try {
      for (const json& shard : item.at("shards"))
        tensor.shards.push_back(to_shard(shard, tensor.shape, version));
    } catch (const DataError& error) {
      throw DataError("tensor '{}': {}", tensor.name, error.what());
    }
  }
  return tensors;
}

json to_json(const Manifest& manifest) {
  const CheckpointMeta& meta = manifest.meta;
  return {
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
      {"digest_block", manifest.digest_block},
      {"files", to_json(manifest.files)},
      {"tensors", to_json(manifest.tensors)}};
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
  const int version = value.at("version");
  if (version > 1) manifest.digest_block = whole_number(value, "digest_block", 0, kMostDigestBlock);
  manifest.files = to_files(value.at("files"));
  manifest.tensors = to_tensors(value.at("tensors"), version);
  return manifest;
}

}  // namespace tandem
