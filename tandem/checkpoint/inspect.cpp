#include "tandem/checkpoint/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tandem/base/quantity.h"
#include "tandem/checkpoint/bands.h"
#include "tandem/checkpoint/boxes.h"
#include "tandem/checkpoint/read_boxes.h"
#include "tandem/checkpoint/running_digest.h"

namespace tandem {
namespace {

bool same_shards(const TensorEntry& a, const TensorEntry& b) {
  return std::equal(a.shards.begin(), a.shards.end(), b.shards.begin(), b.shards.end(),
                    [](const Shard& x, const Shard& y) { return x.box == y.box && x.digests == y.digests; });
}

std::string difference(const Manifest& a, const TensorEntry& mine, const Manifest& b,
                       const TensorEntry* other, ThreadPool* pool) {
  if (other == nullptr) return "only in the first";
  if (mine.shape != other->shape)
    return fmt::format("shape: {} and {}", to_string(mine.shape), to_string(other->shape));
  if (mine.dtype != other->dtype)
    return fmt::format("dtype: {} and {}", dtype_name(mine.dtype), dtype_name(other->dtype));
  if (a.digest_block == b.digest_block) {
    if (same_shards(mine, *other)) return {};
    if (!mine.digest.empty() && !other->digest.empty())
      return std::string(mine.digest == other->digest ? "" : kOtherValues);
  }
  return std::string(tensor_digest(a, mine, pool) == tensor_digest(b, *other, pool) ? "" : kOtherValues);
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
       fmt::format("{} in {}, {}, {}", format_bytes(manifest.total_bytes()),
                   count_of(std::ssize(manifest.tensors), "tensor"),
                   count_of(std::ssize(manifest.files), "file"), count_of(manifest.num_shards(), "shard")));
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
    if (tensor.shards.size() == 1) continue;
    for (const Shard& shard : tensor.shards) {
      fmt::format_to(std::back_inserter(text), "  {}: {}, bytes {} to {}\n", to_string(shard.box), shard.file,
                     shard.offset, shard.offset + shard.bytes);
    }
  }
  return text;
}

std::string tensor_digest(const Manifest& manifest, const TensorEntry& tensor, ThreadPool* pool) {
  // Of a tensor in one block it does not matter how long the block is. Version 1 has one for all its bytes.
  const int64_t block = manifest.digest_block > 0 ? manifest.digest_block : tensor.bytes();
  const bool same_kind =
      manifest.digest_block == kDigestBlock || tensor.bytes() <= std::min(block, kDigestBlock);
  if (!tensor.digest.empty() && same_kind) return tensor.digest;
  const auto elem = static_cast<size_t>(dtype_bytes(tensor.dtype));
  std::vector<std::byte> band;
  BlockDigests digests(kDigestBlock);
  for (const Box& box : bands_of(tensor, manifest.digest_block > 0)) {
    band.resize(static_cast<size_t>(box.elems()) * elem);
    const BoxRead read{&tensor, box, band};
    read_boxes(manifest, {&read, 1}, pool);
    digests.add(read.dst);
  }
  return combine_digests(digests.finish());
}

std::vector<Difference> compare_all(const Manifest& a, const Manifest& b, ThreadPool* pool) {
  std::vector<Difference> result;
  for (const TensorEntry& mine : a.tensors)
    result.push_back({mine.name, difference(a, mine, b, b.find(mine.name), pool)});
  for (const TensorEntry& theirs : b.tensors) {
    if (a.find(theirs.name) == nullptr) result.push_back({theirs.name, "only in the second"});
  }
  return result;
}

std::vector<Difference> compare(const Manifest& a, const Manifest& b, ThreadPool* pool) {
  std::vector<Difference> differences = compare_all(a, b, pool);
  std::erase_if(differences, [](const Difference& item) { return item.what.empty(); });
  return differences;
}

}  // namespace tandem
