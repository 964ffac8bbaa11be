// manifest.json: what a checkpoint holds and where. It is written last, so a directory that has one is
// whole, and it carries a digest of itself, so a damaged one is never believed.
//
// A tensor is described by its logical shape and by shards: index ranges that lie somewhere in the
// checkpoint's files. Readers see only the logical tensor; who wrote which part does not matter to them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/dtype.h"
#include "tandem/base/shape.h"

namespace tandem {

inline constexpr int kManifestVersion = 1;
inline constexpr std::string_view kManifestFile = "manifest.json";

struct Mesh {
  int data = 1;
  int tensor = 1;
  int pipeline = 1;
};

// Bytes [offset, offset + bytes) of `file` are the elements begin[d] <= index[d] < end[d], row-major.
struct Shard {
  std::string file;
  int64_t offset = 0;
  int64_t bytes = 0;
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
  std::string digest;  // of the live memory of this shard
};

struct TensorEntry {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  std::string digest;  // of the whole tensor's live memory; empty where no rank held it whole
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
  Mesh mesh;
  nlohmann::json metrics = nlohmann::json::object();
  nlohmann::json config = nlohmann::json::object();
  nlohmann::json scalars = nlohmann::json::object();  // seed, loss scaler, schedule, data position
};

struct Manifest {
  CheckpointMeta meta;
  int64_t sequence = 0;  // counts the saves of a run directory: newest is highest, whatever its step
  std::string hostname;
  std::string hardware;
  std::string time;
  std::vector<CheckpointFile> files;
  std::vector<TensorEntry> tensors;
  std::filesystem::path directory;  // where it was read from; not part of the file

  const TensorEntry* find(std::string_view name) const;  // nullptr when there is none
  int64_t total_bytes() const;                           // of all tensors
};

std::string render_manifest(const Manifest& manifest);

// Throws DataError starting with `origin` when the text is not exactly what render_manifest wrote, or
// when its shards do not lie in its files and cover its tensors.
Manifest parse_manifest(std::string_view text, const std::string& origin);

// Takes a checkpoint directory, a link to one, or its manifest.json. Checks that every file is there with its
// size, not the bytes in it. Throws DataError naming the file.
Manifest read_manifest(const std::filesystem::path& path);

}  // namespace tandem
