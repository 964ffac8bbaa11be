#include "tandem/train/saving/kept_parts.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/checkpoint/running_digest.h"
#include "tandem/train/model_state.h"

namespace tandem {
namespace {

constexpr uint64_t kMagic = 0x746e646d6b657074;  // "tndmkept"
constexpr int64_t kAlign = 4096;

struct Header {
  uint64_t magic = kMagic;
  int64_t attempt = 0, step = 0, world = 0;  // step 0: nothing is here
  int64_t num_parts = 0, meta_bytes = 0;
};
struct Entry {
  int64_t rank = 0, text_at = 0, text_bytes = 0, data_at = 0, data_bytes = 0;
};

int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

std::span<std::byte> piece(std::span<std::byte> file, int64_t at, int64_t bytes) {
  return file.subspan(static_cast<size_t>(at), static_cast<size_t>(bytes));
}

bool lies_within(int64_t at, int64_t bytes, size_t size) {
  return at >= 0 && bytes >= 0 && at <= static_cast<int64_t>(size) &&
         bytes <= static_cast<int64_t>(size) - at;
}

}  // namespace

PartSize part_size(const CompiledStep& step) {
  const std::vector<TensorView> views = state_outline(step);
  std::vector<ShardPlace> places;
  Part part = describe_part(step.position.rank(), views, places);
  const std::string digest = RunningDigest().hex();  // as long as any
  for (TensorEntry& tensor : part.tensors) {
    for (Shard& shard : tensor.shards) {
      const int64_t blocks = std::max<int64_t>(1, (shard.bytes + kDigestBlock - 1) / kDigestBlock);
      shard.digests.assign(static_cast<size_t>(blocks), digest);
      if (shard.box == whole_box(tensor.shape)) tensor.digest = digest;
    }
  }
  return {part.rank, static_cast<int64_t>(render_part(part).size()), state_staging_bytes(step)};
}

KeptLayout::KeptLayout(std::vector<PartSize> parts) : parts_(std::move(parts)) {
  bytes_ = static_cast<int64_t>(sizeof(Header) + parts_.size() * sizeof(Entry)) + kMetaRoom;
  for (const PartSize& part : parts_) {
    text_at_.push_back(bytes_);
    bytes_ += part.text;
  }
  for (const PartSize& part : parts_) {
    bytes_ = aligned(bytes_);
    data_at_.push_back(bytes_);
    bytes_ += part.data;
  }
  bytes_ = aligned(bytes_);
}

std::span<std::byte> KeptLayout::text(std::span<std::byte> file, size_t part) const {
  return piece(file, text_at_[part], parts_[part].text);
}

std::span<std::byte> KeptLayout::data(std::span<std::byte> file, size_t part) const {
  return piece(file, data_at_[part], parts_[part].data);
}

void KeptLayout::begin(std::span<std::byte> file) const {
  const Header nothing;
  std::memcpy(file.data(), &nothing, sizeof nothing);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void KeptLayout::commit(std::span<std::byte> file, const KeptMoment& moment, std::string_view meta) const {
  if (static_cast<int64_t>(meta.size()) > kMetaRoom)
    throw TrainError(
        "checkpoint.memory: what there is to say of a step takes {} bytes, and copies have room for {}; set "
        "it to 0",
        meta.size(), kMetaRoom);
  std::byte* at = file.data() + sizeof(Header);
  for (size_t i = 0; i < parts_.size(); ++i, at += sizeof(Entry)) {
    const Entry entry{parts_[i].rank, text_at_[i], parts_[i].text, data_at_[i], parts_[i].data};
    std::memcpy(at, &entry, sizeof entry);
  }
  std::memcpy(at, meta.data(), meta.size());
  Header header;
  header.attempt = moment.attempt;
  header.world = moment.world;
  header.num_parts = static_cast<int64_t>(parts_.size());
  header.meta_bytes = static_cast<int64_t>(meta.size());
  std::memcpy(file.data(), &header, sizeof header);
  // Last: a rank that is killed before has kept nothing.
  std::atomic_ref<int64_t>(reinterpret_cast<Header*>(file.data())->step)
      .store(moment.step, std::memory_order_seq_cst);
}

KeptParts read_kept(std::span<const std::byte> file) {
  Header header;
  if (file.size() < sizeof header) return {};
  std::memcpy(&header, file.data(), sizeof header);
  const bool is_sane = header.magic == kMagic && header.step > 0 && header.world > 0 &&
                       header.num_parts > 0 && header.num_parts <= header.world;
  const auto entries = static_cast<int64_t>(sizeof header);
  const int64_t meta = entries + (is_sane ? header.num_parts : 0) * static_cast<int64_t>(sizeof(Entry));
  if (!is_sane || !lies_within(entries, meta - entries, file.size()) ||
      !lies_within(meta, header.meta_bytes, file.size()))
    return {};
  const auto text = [&](int64_t at, int64_t bytes) {
    return std::string_view(reinterpret_cast<const char*>(file.data()) + at, static_cast<size_t>(bytes));
  };
  KeptParts kept{{header.attempt, header.step, header.world}, text(meta, header.meta_bytes), {}};
  for (int64_t i = 0; i < header.num_parts; ++i) {
    Entry entry;
    std::memcpy(&entry, file.data() + entries + i * static_cast<int64_t>(sizeof entry), sizeof entry);
    if (!lies_within(entry.text_at, entry.text_bytes, file.size()) ||
        !lies_within(entry.data_at, entry.data_bytes, file.size()) || entry.rank < 0 ||
        entry.rank >= header.world)
      return {};
    kept.parts.push_back(
        {static_cast<int>(entry.rank), text(entry.text_at, entry.text_bytes),
         file.subspan(static_cast<size_t>(entry.data_at), static_cast<size_t>(entry.data_bytes))});
  }
  return kept;
}

}  // namespace tandem
