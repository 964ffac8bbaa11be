// A shard of a prepared set of images: one object of a store with a 64-byte little-endian header, the images
// and a table of them, to be mapped.
//
//   0 magic "TNDMIMGS"   8 u32 version   12 u32 channels of images that are pixels
//   16 u64 number of images   24 u64 where the table begins   32 digest of all behind the header, 32 hex
//   digits 64 the images one behind the other: files as they were, or pixels [height, width, channels];
//      zeros up to a multiple of 8; the table
//
// An entry of the table: u64 where the image begins, u32 bytes, i32 label, u32 height, u32 width, u64 digest
// of the image and these numbers, with which every image is compared when it is read; a file has a height and
// width of 0. Entries of version 1 have no digest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tandem/data/images/picture.h"
#include "tandem/store/store.h"

namespace tandem {

class CachedObject;

inline constexpr int64_t kShardChannels = 3;
inline constexpr int64_t kShardHeaderBytes = 64;

struct ShardEntry {
  uint64_t offset = 0;
  uint32_t bytes = 0;
  int32_t label = 0;
  uint32_t height = 0, width = 0;
  uint64_t digest = 0;
};
static_assert(sizeof(ShardEntry) == 32);

// Collects images, then writes and syncs the file.
class ImageShardWriter {
 public:
  void add(const StoredImage& image, int32_t label);
  int64_t bytes() const { return kShardHeaderBytes + static_cast<int64_t>(body_.size()); }
  int64_t num_images() const { return static_cast<int64_t>(entries_.size()); }
  std::string write(const std::filesystem::path& path);  // gives the digest, and begins anew

 private:
  std::vector<std::byte> body_;
  std::vector<ShardEntry> entries_;
};

class ImageShard {
 public:
  // Throw DataError naming the object if it is absent, is no shard, or is not as long as its header says.
  ImageShard(const Store& store, const std::string& name);
  explicit ImageShard(std::unique_ptr<CachedObject> far);  // is read image by image
  ~ImageShard();
  ImageShard(ImageShard&& other) noexcept;

  int64_t num_images() const { return static_cast<int64_t>(entries_.size()); }
  const std::string& digest() const { return digest_; }
  const std::string& origin() const { return origin_; }
  int32_t label(int64_t index) const { return entries_[static_cast<size_t>(index)].label; }
  StoredImage read(int64_t index) const;  // throws DataError where it is not what was written
  void expect(int64_t index) const;       // will be read soon

 private:
  void open(int64_t bytes);
  void read_at(int64_t offset, std::span<std::byte> dst) const;

  std::string origin_, digest_;
  bool has_digests_ = false;             // of images
  std::unique_ptr<ObjectBytes> object_;  // mapped, or
  std::unique_ptr<CachedObject> far_;
  std::vector<ShardEntry> entries_;
};

}  // namespace tandem
