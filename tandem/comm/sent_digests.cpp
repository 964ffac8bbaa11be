#include "tandem/comm/sent_digests.h"

#include <fmt/format.h>

#include <atomic>

#include "tandem/base/digest.h"
#include "tandem/base/system.h"

namespace tandem {
namespace {

std::atomic<SentDigests*> g_asked{nullptr};

}  // namespace

void ask_for_sent_digests(SentDigests* digests) { g_asked.store(digests, std::memory_order_release); }
SentDigests* asked_sent_digests() { return g_asked.load(std::memory_order_acquire); }

void SentDigests::add(std::string_view axis, CallKind kind, std::string_view operation,
                      std::string_view label, std::span<const std::byte> bytes) {
  const size_t line = static_cast<size_t>(parse_axis(axis)) * kNumCallKinds + static_cast<size_t>(kind);
  lines_[line].push_back({std::stoull(digest_hex(bytes).substr(0, 16), nullptr, 16), unix_s(),
                          fmt::format("{} {}", operation, label)});
}

std::optional<SentDigests::Difference> SentDigests::first_difference(const SentDigests& again) const {
  std::optional<Difference> first;
  for (size_t line = 0; line < std::size(lines_); ++line) {
    const size_t count = std::min(lines_[line].size(), again.lines_[line].size());
    for (size_t i = 0; i < count; ++i) {
      const Entry& entry = lines_[line][i];
      if (entry.digest == again.lines_[line][i].digest) continue;
      if (!first || entry.time_s < first->time_s) first = {entry.time_s, entry.what};
      break;
    }
  }
  return first;
}

}  // namespace tandem
