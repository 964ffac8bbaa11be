// How often to save: a checkpoint that stops training for `cost_s`, on machines that fail every `mtbf_s`.
#pragma once

#include <cmath>

namespace tandem {

inline double young_interval_s(double cost_s, double mtbf_s) { return std::sqrt(2 * cost_s * mtbf_s); }

// Daly's higher-order estimate.
inline double daly_interval_s(double cost_s, double mtbf_s) {
  if (cost_s >= 2 * mtbf_s) return mtbf_s;
  const double x = cost_s / (2 * mtbf_s);
  return young_interval_s(cost_s, mtbf_s) * (1 + std::sqrt(x) / 3 + x / 9) - cost_s;
}

}  // namespace tandem
