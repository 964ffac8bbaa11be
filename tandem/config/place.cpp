#include "tandem/config/place.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {

bool was_given(const ResolvedConfig& resolved, std::string_view key) {
  const std::string_view origin = resolved.origin(key);
  return origin != "default" && !origin.starts_with("derived");
}

std::string place_of(const ResolvedConfig& resolved, std::string_view key) {
  if (!was_given(resolved, key)) return std::string(key);
  const std::string_view origin = resolved.origin(key);
  return fmt::format("{}{} {}", origin, origin.starts_with("--") ? "" : ":", key);
}

std::string place_of_first(const ResolvedConfig& resolved, std::initializer_list<std::string_view> involved) {
  for (std::string_view key : involved) {
    const std::string_view origin = resolved.origin(key);
    if (was_given(resolved, key))
      return origin.starts_with("--") ? place_of(resolved, key) : std::string(origin);
  }
  return "defaults";
}

std::string either(int64_t below, int64_t above) {
  if (below < 1) return fmt::format("{}", above);
  return below == above ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

std::string nearest_divisors(int64_t whole, int64_t part) {
  int64_t below = std::min(part, whole);
  while (whole % below != 0) --below;
  int64_t above = std::min(part, whole);
  while (whole % above != 0) ++above;
  return either(below, above);
}

}  // namespace tandem
