#include "tandem/checkpoint/manifest_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "tandem/base/clipped.h"
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

constexpr int64_t kMostCount = int64_t{1} << 53;  // of anything: sums and products of a few still fit

// JSON has numbers that int64 has not.
int64_t count_of(const json& number, std::string_view what, int64_t most = kMostCount, int64_t least = 0) {
  if (!number.is_number_integer() || number < least || number > most) {
    throw DataError("{}: expected a whole number from {} to {}, found {}", what, least, most,
                    clipped(number.dump()));
  }
  return number;
}

int64_t count_at(const json& value, const char* key, int64_t most = kMostCount) {
  return count_of(value.at(key), key, most);
}

std::vector<int64_t> counts_at(const json& value, const char* key) {
  std::vector<int64_t> counts;
  for (const json& number : value.at(key)) counts.push_back(count_of(number, key));
  return counts;
}

const json& object_at(const json& value, const char* key) {
  if (!value.at(key).is_object()) throw DataError("{}: expected an object", key);
  return value.at(key);
}

Shape shape_at(const json& value) {
  const std::vector<int64_t> dims = counts_at(value, "shape");
  int64_t elems = 1;  // as if no dim were empty: parts of it are multiplied, too
  for (const int64_t dim : dims) {
    if (__builtin_mul_overflow(elems, std::max<int64_t>(1, dim), &elems) || elems > kMostCount)
      throw DataError("shape: more elements than {}", kMostCount);
  }
  return Shape(dims);
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
  Shard shard{value.at("file"), count_at(value, "offset"), count_at(value, "bytes"), {}, {}};
  const std::vector<int64_t> begin = counts_at(value, "begin"), end = counts_at(value, "end");
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
  return count_of(object.at(key), key, most, least);
}

json to_json(const std::vector<CheckpointFile>& files) {
  json list = json::array();
  for (const CheckpointFile& file : files) list.push_back({{"name", file.name}, {"bytes", file.bytes}});
  return list;
}

std::vector<CheckpointFile> to_files(const json& value) {
  std::vector<CheckpointFile> files;
  for (const json& file : value) files.push_back({file.at("name"), count_at(file, "bytes")});
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
    tensor.digest = item.at("digest");
    try {
      tensor.shape = shape_at(item);
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
  meta.step = count_at(value, "step");
  meta.epoch = count_at(value, "epoch");
  meta.samples = count_at(value, "samples");
  meta.batch = count_at(value, "batch");
  meta.loss =
      value.at("loss").is_null() ? std::numeric_limits<double>::quiet_NaN() : value.at("loss").get<double>();
  const json& mesh = value.at("mesh");
  const auto axis = [&](const char* key) { return static_cast<int>(count_at(mesh, key, 1 << 30)); };
  meta.mesh = {axis("data"), axis("tensor"), axis("pipeline")};
  meta.metrics = object_at(value, "metrics");
  meta.config = object_at(value, "config");
  meta.scalars = object_at(value, "scalars");
  if (meta.scalars.contains("weights_only") && !meta.scalars["weights_only"].is_boolean())
    throw DataError("weights_only: expected true or false");
  manifest.sequence = count_at(value, "sequence");
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
