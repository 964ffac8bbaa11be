#include "tandem/plan/interruptions.h"
#include "tandem/train/saving/save_interval.h"

#include <cmath>

namespace tandem::plan {

double young_interval(const Interruptions& of) { return young_interval_s(of.save, of.mean); }

double daly_interval(const Interruptions& of) { return daly_interval_s(of.save, of.mean); }

double expected_seconds(const Interruptions& of, double work, double interval) {
  const double segments = work / interval;
  return of.mean * std::exp(of.restart / of.mean) * std::expm1((interval + of.save) / of.mean) * segments;
}

Overhead first_order(const Interruptions& of, double interval) {
  return {of.save / interval, interval / (2 * of.mean), of.restart / of.mean};
}

Overhead first_order_with_notice(const Interruptions& of, double interval) {
  return {of.save / interval, of.save / of.mean, of.restart / of.mean};
}

}  // namespace tandem::plan
