// The numbers of a run's metrics.jsonl as columns, read as they are written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::dash {

// The names and numbers of a row, null as not-a-number, the time as seconds since 1970. False where the line
// is no flat JSON object. Takes a tenth of a JSON parser's time, which a million rows are read in.
bool read_row(std::string_view line, const std::function<void(std::string_view name, double value)>& visit);

class Series {
 public:
  explicit Series(std::filesystem::path file) : file_(std::move(file)) {}

  enum class Change { None, Grew, Restarted };  // Restarted: rows that were read are no longer there
  Change update();                              // reads what is new; a file that is not there has no rows

  size_t size() const { return steps_.size(); }
  std::span<const double> steps() const { return steps_; }
  std::span<const double> counts() const { return counts_; }   // tokens or samples so far
  std::span<const double> times() const { return times_; }     // seconds since 1970
  std::vector<std::string> names() const;                      // of the other columns
  std::span<const float> column(std::string_view name) const;  // not-a-number where a row lacks it
  size_t memory_bytes() const;

 private:
  struct Column {
    std::string name;
    std::vector<float> values;
  };
  void clear();
  bool is_same_file(int fd) const;
  void read_rows(std::string_view text);
  void put(std::string_view name, double value, size_t row);

  std::filesystem::path file_;
  int64_t position_ = 0;  // behind the last whole line
  uint64_t inode_ = 0;
  std::string tail_;  // the last bytes before the position: a file that was cut and went on has others
  std::vector<double> steps_, counts_, times_;
  std::vector<Column> columns_;
  size_t next_ = 0;  // the column that likely comes next: rows have the same order
};

// At most about `points` rows of [begin, end) that have a value, among them the least and the greatest of
// each stretch: nothing that stands out is lost. In order.
std::vector<uint32_t> downsample(std::span<const float> values, size_t begin, size_t end, size_t points);

}  // namespace tandem::dash
