#include "tandem/checkpoint/joined.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/split_float.h"
#include "tandem/checkpoint/running_digest.h"

namespace tandem {
namespace {

// Calls use(bytes) for the joined numbers in order, in `dst` or, where it is empty, in memory for one call.
template <typename Use>
void for_each_joined(std::span<const std::byte> high, std::span<const std::byte> low,
                     std::span<std::byte> dst, const Use& use) {
  const size_t size = high.size() + low.size();
  TANDEM_CHECK(dst.empty() || dst.size() >= size);
  std::vector<std::byte> own(dst.empty() ? std::min(kDigestPiece, size) : 0);
  for (size_t done = 0; done < size; done += kDigestPiece) {
    const size_t count = std::min(kDigestPiece, size - done);
    const auto joined = dst.empty() ? std::span(own).first(count) : dst.subspan(done, count);
    join_floats(high.subspan(done / 2, count / 2), low.subspan(done / 2, count / 2), joined);
    use(joined);
  }
}

}  // namespace

std::vector<std::string> digest_and_join(std::span<const std::byte> high, std::span<const std::byte> low,
                                         std::span<std::byte> dst, int64_t block) {
  BlockDigests digests(block);
  for_each_joined(high, low, dst, [&](std::span<const std::byte> bytes) { digests.add(bytes); });
  return digests.finish();
}

void write_joined(ObjectWriter& file, std::span<const std::byte> high, std::span<const std::byte> low) {
  for_each_joined(high, low, {}, [&](std::span<const std::byte> bytes) { file.write_all(bytes); });
}

}  // namespace tandem
