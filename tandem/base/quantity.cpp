#include "tandem/base/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tandem {
namespace {

// `value` with `base` divided out until at most 3 digits stand before the point, and the unit reached.
size_t scale_down(double& value, double base, double limit, size_t num_units) {
  size_t unit = 0;
  while (std::abs(value) >= limit && unit + 1 < num_units) {
    value /= base;
    ++unit;
  }
  return unit;
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  static constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  const size_t unit = scale_down(value, 1024.0, 999.95, kUnits.size());
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_count(double count) {
  static constexpr std::array<const char*, 7> kUnits = {"", "k", "M", "G", "T", "P", "E"};
  if (!std::isfinite(count)) return "-";
  double value = count;
  const size_t unit = scale_down(value, 1000.0, 999.5, kUnits.size());
  if (unit == 0) return fmt::format("{:.0f}", value);
  const int decimals = std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, kUnits[unit]);
}

std::string count_of(int64_t count, std::string_view noun) {
  const std::string_view ending = count == 1 ? "" : noun.ends_with("s") ? "es" : "s";
  return fmt::format("{} {}{}", count, noun, ending);
}

std::string format_loss(double loss) { return std::isnan(loss) ? "nan" : fmt::format("{:.4f}", loss); }

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 9.995) return fmt::format("{:.2f} s", seconds);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d {:02}h", whole / 86400, whole / 3600 % 24);
}

std::chrono::milliseconds wait_of(double seconds) {
  constexpr double kLongest = 1e8;
  return std::chrono::milliseconds(static_cast<int64_t>(std::min(seconds, kLongest) * 1e3));
}

}  // namespace tandem
