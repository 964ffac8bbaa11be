// Digests of what a rank hands to its communicators, call by call, while somebody asks for them: when a step
// is taken twice, the first call that differs is where a wrong number left the rank that made it, before any
// other could be wrong because of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/mesh.h"
#include "tandem/comm/places/place_page.h"

namespace tandem {

class SentDigests {
 public:
  struct Difference {
    double time_s = 0;  // since 1970, when it was sent first
    std::string what;   // "reduce_scatter blocks.3"
  };
  void add(std::string_view axis, CallKind kind, std::string_view operation, std::string_view label,
           std::span<const std::byte> bytes);
  // The earliest call here that sent other bits than in `again`.
  std::optional<Difference> first_difference(const SentDigests& again) const;

 private:
  struct Entry {
    uint64_t digest = 0;
    double time_s = 0;
    std::string what;
  };
  std::vector<Entry> lines_[kNumAxes * kNumCallKinds];  // each is one thread's
};

// For this process, which is one rank, until null is given.
void ask_for_sent_digests(SentDigests* digests);
SentDigests* asked_sent_digests();

}  // namespace tandem
