// Copies of the state in one file of kept memory (comm/kept_memory.h): the part that a rank owns, and parts
// of ranks of another node. A file that is being written holds nothing until it is committed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/checkpoint/part.h"
#include "tandem/compile/executable.h"

namespace tandem {

// Which state it is: parts of different ones do not go together.
struct KeptMoment {
  int64_t attempt = 0;  // of the launch
  int64_t step = 0;
  int64_t world = 0;  // ranks that the parts are of
  auto operator<=>(const KeptMoment&) const = default;
};

// A rank's part: its description, as it will be with digests, and its numbers.
struct PartSize {
  int rank = 0;
  int64_t text = 0;
  int64_t data = 0;
};
PartSize part_size(const CompiledStep& step);

// Where the parts lie; the owner's is the first.
class KeptLayout {
 public:
  static constexpr int64_t kMetaRoom = int64_t{256} << 10;

  explicit KeptLayout(std::vector<PartSize> parts);
  int64_t bytes() const { return bytes_; }
  size_t num_parts() const { return parts_.size(); }
  int rank(size_t part) const { return parts_[part].rank; }
  std::span<std::byte> text(std::span<std::byte> file, size_t part) const;
  std::span<std::byte> data(std::span<std::byte> file, size_t part) const;

  void begin(std::span<std::byte> file) const;
  // Throws TrainError where `meta` has no room.
  void commit(std::span<std::byte> file, const KeptMoment& moment, std::string_view meta) const;

 private:
  std::vector<PartSize> parts_;
  std::vector<int64_t> text_at_, data_at_;
  int64_t bytes_ = 0;
};

struct KeptPart {
  int rank = 0;
  std::string_view text;
  std::span<const std::byte> data;
};
struct KeptParts {
  KeptMoment moment;
  std::string_view meta;
  std::vector<KeptPart> parts;
};
// What a file holds; no parts where it was never committed, or is damaged.
KeptParts read_kept(std::span<const std::byte> file);

}  // namespace tandem
