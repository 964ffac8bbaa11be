#include "tandem/checkpoint/part.h"

#include <iterator>
#include <limits>
#include <unordered_map>

#include "tandem/base/error.h"
#include "tandem/checkpoint/manifest_json.h"
#include "tandem/store/draft.h"

namespace tandem {

std::string data_file_name(int rank) { return fmt::format("rank-{:05}.ckpt", rank); }
std::string part_file_name(int rank) { return fmt::format("part-{:05}.json", rank); }

Part describe_part(int rank, std::span<const TensorView> views, std::vector<ShardPlace>& shards) {
  Part part;
  part.rank = rank;
  const std::string file = data_file_name(rank);
  std::unordered_map<std::string_view, size_t> index;
  int64_t offset = 0;
  for (const TensorView& view : views) {
    const int64_t bytes = view.num_bytes();
    TANDEM_CHECK(contains(whole_box(view.shape), view.box), "tensor '{}' of {}: {}", view.name,
                 to_string(view.shape), to_string(view.box));
    TANDEM_CHECK(view.fits(), "tensor '{}': {} of {} is {} bytes, given {} and {}", view.name,
                 to_string(view.box), dtype_name(view.dtype), bytes, view.bytes.size(), view.low.size());
    const auto [found, is_new] = index.try_emplace(view.name, part.tensors.size());
    if (is_new) part.tensors.push_back({view.name, view.dtype, view.shape, {}, {}});
    TensorEntry& entry = part.tensors[found->second];
    TANDEM_CHECK(entry.dtype == view.dtype && entry.shape == view.shape, "tensor '{}'", view.name);
    shards.push_back({found->second, entry.shards.size()});
    entry.shards.push_back({file, offset, bytes, view.box, {}});
    offset += bytes;
  }
  if (!views.empty()) part.files.push_back({file, offset});
  return part;
}

std::string render_part(const Part& part) {
  return seal({{"rank", part.rank},
               {"digest_block", part.digest_block},
               {"files", to_json(part.files)},
               {"tensors", to_json(part.tensors)}});
}

Part parse_part(std::string_view text, const std::string& origin) {
  const nlohmann::json content = unseal(text, "part", origin);
  try {
    return {static_cast<int>(whole_number(content, "rank", 0, std::numeric_limits<int>::max())),
            whole_number(content, "digest_block", 1, kMostDigestBlock), to_files(content.at("files")),
            to_tensors(content.at("tensors"), content.at("version"))};
  } catch (const nlohmann::json::exception& error) {
    throw DataError("{}: not a part of a checkpoint: {}", origin, error.what());
  } catch (const Error& error) {
    throw DataError("{}: {}", origin, error.what());
  }
}

void merge_parts(std::vector<Part> parts, Manifest& manifest) {
  struct Seen {
    size_t index;
    int rank;
  };
  std::unordered_map<std::string, Seen> seen;
  manifest.digest_block = parts.empty() ? kDigestBlock : parts.front().digest_block;
  for (Part& part : parts) {
    if (part.digest_block != manifest.digest_block) {
      throw DataError("rank {} has digests of {} bytes each, rank {} of {}: ranks run different versions",
                      part.rank, part.digest_block, parts.front().rank, manifest.digest_block);
    }
    std::move(part.files.begin(), part.files.end(), std::back_inserter(manifest.files));
    for (TensorEntry& tensor : part.tensors) {
      const auto [found, is_new] = seen.try_emplace(tensor.name, Seen{manifest.tensors.size(), part.rank});
      if (is_new) {
        manifest.tensors.push_back(std::move(tensor));
        continue;
      }
      TensorEntry& entry = manifest.tensors[found->second.index];
      if (entry.dtype != tensor.dtype || entry.shape != tensor.shape) {
        throw DataError("tensor '{}': rank {} has {} {}, rank {} has {} {}", tensor.name, found->second.rank,
                        dtype_name(entry.dtype), to_string(entry.shape), part.rank, dtype_name(tensor.dtype),
                        to_string(tensor.shape));
      }
      std::move(tensor.shards.begin(), tensor.shards.end(), std::back_inserter(entry.shards));
    }
  }
  check_shards(manifest, "parts of the ranks");
}

void name_as_committed(Manifest& manifest, const Draft& draft) {
  for (CheckpointFile& file : manifest.files) file.name = draft.committed_name(file.name);
  for (TensorEntry& tensor : manifest.tensors) {
    for (Shard& shard : tensor.shards) shard.file = draft.committed_name(shard.file);
  }
}

}  // namespace tandem
