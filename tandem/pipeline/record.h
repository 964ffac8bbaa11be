// What the store knows of a step: the record of a finished one, which says what it was made of, and notes of
// one that was begun or failed. A step is finished when its record is there, whole; nothing else counts.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tandem/pipeline/plan.h"

namespace tandem::pipeline {

using Json = nlohmann::ordered_json;

inline constexpr const char* kRecord = "record.json";
inline constexpr const char* kLog = "log";

// An output as the step left it: how many files, how many bytes.
struct Extent {
  int64_t files = 0, bytes = 0;
  bool operator==(const Extent&) const = default;
};
Extent extent_of(const std::filesystem::path& path);

// Nothing where it is no record, or where a part of one is not of its kind: a disk may give back anything.
std::optional<Json> parse_record(const std::string& text);

// Nothing where the step is not finished, or where its output is gone.
std::optional<Json> read_record(const Plan& plan, size_t step);

struct Attempt {
  int64_t number = 0;  // of starts so far, over all runs
  std::string start;   // of the last
  pid_t runner = 0;
  std::string failure;  // empty: none
};
Attempt read_attempt(const Plan& plan, size_t step);
void write_attempt(const Plan& plan, size_t step, const Attempt& attempt);

// Makes the step finished.
void write_record(const Plan& plan, size_t step, const Attempt& attempt, double seconds,
                  const std::string& version);

// The numbers of an output, by name: of a JSON file, or of the last line of one that is a JSON object; of a
// run's summary.json.
Json metrics_of(const std::filesystem::path& output);

// Makes the step's `out` a link to its output; nothing where it is one already.
void link_output(const Plan& plan, size_t step);
// Takes the link away; the output stays.
void unlink_output(const Plan& plan, size_t step);
// Throws ConfigError where something of somebody else is at a step's `out`.
void check_links(const Plan& plan);

}  // namespace tandem::pipeline
