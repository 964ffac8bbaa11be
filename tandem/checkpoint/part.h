// One rank's share of a checkpoint that is being saved. It lies in the pending directory as part-00003.json,
// beside the rank's data, until rank 0 has made the manifest of all of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/checkpoint/manifest.h"
#include "tandem/checkpoint/piece.h"
#include "tandem/checkpoint/running_digest.h"

namespace tandem {

struct Part {
  int rank = 0;
  int64_t digest_block = kDigestBlock;  // the same for all parts of a checkpoint
  std::vector<CheckpointFile> files;    // none where the rank owns nothing
  std::vector<TensorEntry> tensors;     // what of them this rank has
};

std::string data_file_name(int rank);  // "rank-00003.ckpt"
std::string part_file_name(int rank);  // "part-00003.json"

// The part of these views, one after another without gaps in one file: every byte of it is under some digest.
// The digests are still missing: a place for those of each view is added to `shards`, in order of the views.
struct ShardPlace {
  size_t tensor;  // of part.tensors
  size_t shard;   // of its shards
};
Part describe_part(int rank, std::span<const TensorView> views, std::vector<ShardPlace>& shards);

std::string render_part(const Part& part);
Part parse_part(std::string_view text, const std::string& origin);  // throws DataError starting with `origin`

// Fills in the files and tensors of a manifest. Throws DataError where ranks disagree on a tensor, or where
// the parts do not make every tensor whole.
void merge_parts(std::vector<Part> parts, Manifest& manifest);

// The files of a draft get the names they will have in the bundle.
void name_as_committed(Manifest& manifest, const Draft& draft);

}  // namespace tandem
