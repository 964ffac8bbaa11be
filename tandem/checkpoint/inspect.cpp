#include "tandem/checkpoint/inspect.h"

#include <algorithm>
#include <iterator>

#include "tandem/base/units.h"

namespace tandem {
namespace {

bool same_shards(const TensorEntry& a, const TensorEntry& b) {
  return std::equal(a.shards.begin(), a.shards.end(), b.shards.begin(), b.shards.end(),
                    [](const Shard& x, const Shard& y) {
                      return x.begin == y.begin && x.end == y.end && x.digest == y.digest;
                    });
}

bool same_values(const TensorEntry& a, const TensorEntry& b) {
  if (!a.digest.empty() && !b.digest.empty()) return a.digest == b.digest;
  return same_shards(a, b);
}

}  // namespace

std::string describe_checkpoint(const Manifest& manifest, bool tensors) {
  const CheckpointMeta& meta = manifest.meta;
  std::string text;
  const auto line = [&](std::string_view key, const std::string& value) {
    fmt::format_to(std::back_inserter(text), "{:<10} {}\n", key, value);
  };
  line("checkpoint", manifest.directory.string());
  line("step",
       fmt::format("{} (epoch {}, {} samples, batch {})", meta.step, meta.epoch, meta.samples, meta.batch));
  line("loss", fmt::format("{:.6g}", meta.loss));
  line("saved", fmt::format("{} on {} ({})", manifest.time, manifest.hostname, manifest.hardware));
  line("mesh",
       fmt::format("data {}, tensor {}, pipeline {}", meta.mesh.data, meta.mesh.tensor, meta.mesh.pipeline));
  line("size",
       fmt::format("{} in {} tensors, {} file{}", format_bytes(manifest.total_bytes()),
                   manifest.tensors.size(), manifest.files.size(), manifest.files.size() == 1 ? "" : "s"));
  for (const auto& [key, value] : meta.metrics.items()) line(key, value.dump());
  if (!tensors || manifest.tensors.empty()) return text;

  size_t name_width = 6, shape_width = 5;
  for (const TensorEntry& tensor : manifest.tensors) {
    name_width = std::max(name_width, tensor.name.size());
    shape_width = std::max(shape_width, to_string(tensor.shape).size());
  }
  const auto row = [&](std::string_view name, std::string_view dtype, std::string_view shape,
                       std::string_view bytes, std::string_view shards, std::string_view digest) {
    fmt::format_to(std::back_inserter(text), "{:<{}}  {:<5}  {:<{}}  {:>10}  {:>6}  {}\n", name, name_width,
                   dtype, shape, shape_width, bytes, shards, digest);
  };
  text += "\n";
  row("tensor", "dtype", "shape", "bytes", "shards", "digest");
  for (const TensorEntry& tensor : manifest.tensors) {
    row(tensor.name, dtype_name(tensor.dtype), to_string(tensor.shape), format_bytes(tensor.bytes()),
        fmt::format("{}", tensor.shards.size()), tensor.digest.empty() ? "by shard" : tensor.digest);
  }
  return text;
}

std::vector<Difference> compare(const Manifest& a, const Manifest& b) {
  std::vector<Difference> differences;
  for (const TensorEntry& mine : a.tensors) {
    const TensorEntry* other = b.find(mine.name);
    if (other == nullptr) {
      differences.push_back({mine.name, "only in the first"});
    } else if (mine.shape != other->shape) {
      differences.push_back(
          {mine.name, fmt::format("shape: {} and {}", to_string(mine.shape), to_string(other->shape))});
    } else if (mine.dtype != other->dtype) {
      differences.push_back(
          {mine.name, fmt::format("dtype: {} and {}", dtype_name(mine.dtype), dtype_name(other->dtype))});
    } else if (!same_values(mine, *other)) {
      differences.push_back({mine.name, "values"});
    }
  }
  for (const TensorEntry& theirs : b.tensors) {
    if (a.find(theirs.name) == nullptr) differences.push_back({theirs.name, "only in the second"});
  }
  return differences;
}

}  // namespace tandem
