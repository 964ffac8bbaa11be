// manifest.json: what a checkpoint holds and where. It is written last, so a directory that has one is
// whole, and it carries a digest of itself, so a damaged one is never believed.
//
// A tensor is described by its logical shape and by shards: boxes of it that lie somewhere in the
// checkpoint's files and cover it exactly once. Readers see only the logical tensor; who wrote which part
// does not matter to them. In the file a box is "begin": [row, column], "end": [row, column] of the tensor
// seen as [first dim, product of the others]; version 1 had an index for each dim, and one digest a shard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/box.h"
#include "tandem/base/dtype.h"
#include "tandem/base/mesh.h"
#include "tandem/base/shape.h"
#include "tandem/store/store.h"

namespace tandem {

inline constexpr int kManifestVersion = 2;
inline constexpr std::string_view kManifestFile = kIndexName;

// Bytes [offset, offset + bytes) of `file` are the elements of `box`, row-major.
struct Shard {
  std::string file;
  int64_t offset = 0;
  int64_t bytes = 0;
  Box box;
  std::vector<std::string> digests;  // of the live memory, one for each digest_block bytes and at least one
};

struct TensorEntry {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  // Of the whole tensor's live memory, empty where no rank held it whole: combine_digests of its blocks, in
  // version 1 of all its bytes.
  std::string digest;
  std::vector<Shard> shards;

  int64_t bytes() const { return shape.elems() * dtype_bytes(dtype); }
};

struct CheckpointFile {
  std::string name;
  int64_t bytes = 0;
};

// What the training loop knows of the moment.
struct CheckpointMeta {
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t samples = 0;  // seen so far
  int64_t batch = 0;
  double loss = 0;
  MeshShape mesh;
  std::string hardware;  // empty: this machine's
  nlohmann::json metrics = nlohmann::json::object();
  nlohmann::json config = nlohmann::json::object();
  nlohmann::json scalars = nlohmann::json::object();  // seed, loss scaler, schedule, data position
  bool is_best = false;  // `best` stands for it from now on; not part of the file
};

struct Manifest {
  CheckpointMeta meta;
  int64_t sequence = 0;  // counts the saves of a run directory: newest is highest, whatever its step
  std::string hostname;
  std::string hardware;
  std::string time;
  int64_t digest_block = 0;  // 0: a shard has one digest, however long it is
  std::vector<CheckpointFile> files;
  std::vector<TensorEntry> tensors;
  // Where it was read from; not part of the file.
  std::optional<StoreRef> store;
  std::string name;                 // of its bundle there
  std::filesystem::path directory;  // the bundle's description: a path on a disk

  // Made of weights alone (an import): what an optimizer keeps of them starts at zero.
  bool weights_only() const { return meta.scalars.value("weights_only", false); }
  const TensorEntry* find(std::string_view name) const;  // nullptr when there is none
  int64_t total_bytes() const;                           // of all tensors
  int64_t num_shards() const;
  std::unique_ptr<ObjectReader> open(const std::string& file) const;
  bool is_far() const;                            // see Store
  int64_t block_bytes(const Shard& shard) const;  // what one of its digests is of; the last may be of less
};

std::string render_manifest(const Manifest& manifest);

// Throws DataError starting with `origin` unless every shard lies in its file and in its tensor, has its
// digests, and every element of every tensor is in exactly one.
void check_shards(const Manifest& manifest, const std::string& origin);

// Throws DataError starting with `origin` when the text is not exactly what render_manifest (of this or an
// earlier version) wrote, or fails check_shards.
Manifest parse_manifest(std::string_view text, const std::string& origin);

// Throws DataError naming the first of the manifest's files that `open` does not give with its size.
using OpenFile = std::function<std::unique_ptr<ObjectReader>(const std::string& file)>;
void check_files(const Manifest& manifest, const OpenFile& open);

// Of a checkpoint in a store, or of what `latest` stands for. Checks that every file is there with its size,
// not the bytes in it. Throws DataError naming the file.
Manifest read_manifest(const StoreRef& store, const std::string& name);

// Takes a checkpoint directory, a link to one, or its manifest.json; a store's directory, for its newest; or
// s3://... of any of these.
Manifest read_manifest(const std::filesystem::path& path);

}  // namespace tandem
