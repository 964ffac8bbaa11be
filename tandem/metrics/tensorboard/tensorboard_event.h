// TensorBoard's events as the bytes of their protobuf messages, which are few enough to be written by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/metrics/histogram.h"
#include "tandem/metrics/step_record.h"

namespace tandem::tensorboard {

std::string version_event(double wall_s);  // the first of every file

// From here on steps begin at `step`: readers forget what earlier files say of it and of later ones.
std::string start_event(double wall_s, int64_t step);

// A scalar for each number of the row but the step, as the fp32 that TensorBoard's scalars are. All of a step
// are one event: it is there whole or not at all.
std::string scalars_event(const StepRecord& record);

std::string text_event(double wall_s, int64_t step, std::string_view tag, std::string_view markdown);

// All of one step.
std::string histograms_event(double wall_s, int64_t step, const std::vector<Histogram>& histograms);

// What was written by the functions above.
struct Event {
  double wall_s = 0;
  int64_t step = 0;
  std::vector<std::pair<std::string, float>> scalars;
};
std::optional<Event> read_event(std::string_view bytes);  // nothing where it is no event

// Seconds since 1970 of a row's time; 0 where it is none.
double wall_time(std::string_view iso8601);

}  // namespace tandem::tensorboard
