#include "tandem/data/images/image_shard.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/store/cache/read_ahead.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are read and written in place");

constexpr uint32_t kVersion = 2, kOldest = 1;
constexpr size_t kOldEntryBytes = offsetof(ShardEntry, digest);
constexpr uint32_t kMostSide = 1 << 16;
constexpr char kMagic[] = "TNDMIMGS";

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t channels;
  uint64_t num_images;
  uint64_t table;
  char digest[32];
};
static_assert(sizeof(Header) == kShardHeaderBytes);

uint64_t short_digest(std::span<const std::byte> bytes) {
  return std::stoull(digest_hex(bytes).substr(0, 16), nullptr, 16);
}

// Of an image with its label: either changed alone is as wrong.
uint64_t digest_of(std::span<const std::byte> image, const ShardEntry& entry) {
  struct {
    uint64_t image;
    int32_t label;
    uint32_t height, width, bytes;
  } const all{short_digest(image), entry.label, entry.height, entry.width, entry.bytes};
  return short_digest(std::as_bytes(std::span(&all, 1)));
}

}  // namespace

void ImageShardWriter::add(const StoredImage& image, int32_t label) {
  TANDEM_CHECK(image.is_encoded() || image.channels == kShardChannels);
  entries_.push_back({.offset = static_cast<uint64_t>(bytes()),
                      .bytes = static_cast<uint32_t>(image.bytes.size()),
                      .label = label,
                      .height = static_cast<uint32_t>(image.height),
                      .width = static_cast<uint32_t>(image.width)});
  entries_.back().digest = digest_of(image.bytes, entries_.back());
  body_.insert(body_.end(), image.bytes.begin(), image.bytes.end());
}

std::string ImageShardWriter::write(const std::filesystem::path& path) {
  body_.resize((body_.size() + 7) / 8 * 8);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  header.version = kVersion;
  header.channels = kShardChannels;
  header.num_images = entries_.size();
  header.table = static_cast<uint64_t>(bytes());
  const auto table = std::as_bytes(std::span(entries_));
  body_.insert(body_.end(), table.begin(), table.end());
  const std::string digest = digest_hex(body_);
  std::memcpy(header.digest, digest.data(), sizeof(header.digest));
  OutputFile file(path);
  file.write_all(std::as_bytes(std::span(&header, 1)));
  file.write_all(body_);
  file.sync_and_close();
  body_.clear();
  entries_.clear();
  return digest;
}

ImageShard::ImageShard(const Store& store, const std::string& name) : origin_(store.description(name)) {
  if (!store.exists(name)) throw DataError("{}: shard is missing; run tandem prepare again", origin_);
  object_ = store.map(name);
  open(static_cast<int64_t>(object_->bytes().size()));
}

ImageShard::ImageShard(std::unique_ptr<CachedObject> far)
    : origin_(far->description()), far_(std::move(far)) {
  open(far_->size());
}

ImageShard::~ImageShard() = default;
ImageShard::ImageShard(ImageShard&& other) noexcept = default;

void ImageShard::open(int64_t bytes) {
  Header header{};
  if (bytes < kShardHeaderBytes) throw DataError("{}: cut off: {} bytes", origin_, bytes);
  read_at(0, std::as_writable_bytes(std::span(&header, 1)));
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0 || header.version < kOldest ||
      header.version > kVersion || header.channels != kShardChannels) {
    throw DataError("{}: not a shard of images of version {} or {}; run tandem prepare again", origin_,
                    kOldest, kVersion);
  }
  has_digests_ = header.version > 1;
  const size_t entry_bytes = has_digests_ ? sizeof(ShardEntry) : kOldEntryBytes;
  const auto all = static_cast<uint64_t>(bytes);
  if (header.table > all || header.table < static_cast<uint64_t>(kShardHeaderBytes) ||
      header.num_images != (all - header.table) / entry_bytes || (all - header.table) % entry_bytes != 0) {
    throw DataError("{}: cut off or damaged: {} bytes for {} images; run tandem prepare again", origin_,
                    bytes, header.num_images);
  }
  digest_.assign(header.digest, sizeof(header.digest));
  std::vector<std::byte> table(all - header.table);
  read_at(static_cast<int64_t>(header.table), table);
  entries_.resize(header.num_images);
  for (size_t i = 0; i < entries_.size(); ++i)
    std::memcpy(&entries_[i], table.data() + i * entry_bytes, entry_bytes);
  for (const ShardEntry& entry : entries_) {
    const bool is_file = entry.height == 0 && entry.width == 0;
    const bool has_size = entry.height > 0 && entry.height <= kMostSide && entry.width > 0 &&
                          entry.width <= kMostSide &&
                          uint64_t{entry.height} * entry.width * kShardChannels == entry.bytes;
    if (entry.offset < static_cast<uint64_t>(kShardHeaderBytes) || entry.offset > header.table ||
        entry.bytes > header.table - entry.offset || (!is_file && !has_size)) {
      throw DataError("{}: damaged table of images; run tandem prepare again", origin_);
    }
  }
}

void ImageShard::read_at(int64_t offset, std::span<std::byte> dst) const {
  if (far_) return far_->read_at(offset, dst);
  if (dst.empty()) return;
  std::memcpy(dst.data(), object_->bytes().data() + offset, dst.size());
}

StoredImage ImageShard::read(int64_t index) const {
  const ShardEntry& entry = entries_[static_cast<size_t>(index)];
  StoredImage image{std::vector<std::byte>(entry.bytes), entry.height, entry.width,
                    entry.height == 0 ? 0 : kShardChannels};
  read_at(static_cast<int64_t>(entry.offset), image.bytes);
  if (has_digests_ && digest_of(image.bytes, entry) != entry.digest) {
    throw DataError(
        "{}: image {}: is not what was written there: the file is damaged; run tandem prepare again", origin_,
        index);
  }
  return image;
}

void ImageShard::expect(int64_t index) const {
  const ShardEntry& entry = entries_[static_cast<size_t>(index)];
  if (far_) far_->expect(static_cast<int64_t>(entry.offset), entry.bytes);
}

}  // namespace tandem
