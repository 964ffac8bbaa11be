// What `profile` shows: the time of every kernel in a step against the machine's ceilings.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace tandem::cli {

struct KernelTime {
  int64_t calls = 0;
  double seconds = 0;
  double flops = 0;
  double fp8_flops = 0;  // of them, by products of 8-bit floats
  double bytes = 0;      // the fewest it must move
};

struct Ceilings {
  double flops = 0;
  double fp8_flops = 0;  // 0 where none are done, or where they could not be measured
  double bandwidth = 0;  // of a plain copy in memory
};

// Which of the two ceilings binds a kernel, and how close to it it is: the time its arithmetic needs at peak,
// or its bytes at copy speed, over the time it took. Bytes that are moved faster than that came from a cache:
// the ceiling is not theirs, and a fraction of it would mean nothing.
enum class Bound { Compute, Memory, Cache };
struct Ceiling {
  Bound bound;
  double fraction;  // but for Cache
};
Ceiling ceiling_of(const KernelTime& time, const Ceilings& ceilings);

struct Profiled {
  std::map<std::string, KernelTime> computing;  // one after the other: their shares of the step add up
  std::map<std::string, KernelTime> beside;     // while those ran, on streams of their own: no share
  int64_t steps = 1;                            // that were timed
  double step_s = 0;                            // of one of them
};

std::string kernel_table(const Profiled& profiled, const Ceilings& ceilings);
nlohmann::json kernel_json(const Profiled& profiled, const Ceilings& ceilings);

}  // namespace tandem::cli
