// What is known of one training step, and its row in metrics.jsonl and metrics.csv.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

// What a run counts: tokens of text, images, or samples of some other kind.
enum class CountedIn { Tokens, Images, Samples };
std::string_view unit_name(CountedIn unit);  // "tokens"
std::string_view rate_key(CountedIn unit);   // "tokens_per_s" of text, else "samples_per_s"

struct StepRecord {
  int64_t step = 0;  // from 1
  int64_t epoch = 0;
  float loss = 0;
  float lr = 0;
  float grad_norm = 0;
  float loss_scale = 1;
  CountedIn unit = CountedIn::Tokens;
  int64_t count = 0;  // of them, trained on so far, this step included: `tokens`, or `samples`
  double per_s = 0;   // `tokens_per_s`, or `samples_per_s`
  double step_ms = 0;
  double data_wait_ms = 0;
  double comm_wait_ms = 0;  // for other ranks; only in the rows of ranks
  int64_t rss_bytes = 0;
  int64_t device_bytes = 0;
  double mfu = 0;                  // fraction of the peak, 0 to 1
  std::string time;                // ISO 8601; filled in when empty
  std::optional<float> eval_loss;  // where this step was followed by an evaluation
  std::optional<float> eval_accuracy;
  // Numbers that only some runs have: eval_loss/NAME of sets with names, grad_norm/PATTERN of groups. CSV
  // files, whose columns are those of every run, leave them out.
  std::vector<std::pair<std::string, float>> more;
  // A GPU's own figures, where it tells them; about a second old at most.
  std::optional<float> gpu_busy_percent;
  std::optional<float> gpu_power_w;
  std::optional<float> gpu_temperature_c;
  std::optional<int64_t> gpu_used_bytes;  // by every process
};

// Floats have the fewest digits that give back the same float; what is not finite is null, or nan and inf.
std::string jsonl_row(const StepRecord& record);

// What of a row is a number, by name, in the order of the columns and without what is absent. For sinks that
// keep a curve for each name.
struct NamedNumber {
  std::string_view name;
  double value;
};
std::vector<NamedNumber> numbers_of(const StepRecord& record);

// The same with the digits of metrics.jsonl; what is not finite is NaN, Infinity or -Infinity.
struct NamedDigits {
  std::string_view name;
  std::string digits;
};
std::vector<NamedDigits> digits_of(const StepRecord& record);

// The columns of a CSV file are the same in all its rows; those of a GPU are in the files of runs on one.
enum class CsvColumns { Plain, WithGpu };
std::string csv_row(const StepRecord& record, CsvColumns columns = CsvColumns::Plain);
std::string_view csv_header(CsvColumns columns = CsvColumns::Plain, CountedIn unit = CountedIn::Tokens);

// What differs between the ranks of a step: times and memory. For logs/rank-<n>.jsonl.
std::string rank_row(const StepRecord& record);

// The double that a float's shortest digits stand for: JSON then shows 0.1f as 0.1, and gives back 0.1f.
double shortest_double(float value);

// The step of a row written by the two above; nothing when the line is not such a row.
std::optional<int64_t> jsonl_step(std::string_view line);
std::optional<int64_t> csv_step(std::string_view line);

}  // namespace tandem
