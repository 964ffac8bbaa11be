// A .wandb file: what W&B's own client writes of an offline run, and `wandb sync` reads. Records are protobuf
// messages in LevelDB's log format: chunks of at most 32 KiB that cross no block, each with its crc32, behind
// a head of 7 bytes. Names and numbers are from the public schema (wandb/proto/wandb_internal.proto).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/metrics/step_record.h"

namespace tandem::wandb {

std::string file_head();  // the first bytes of every file

// The bytes of a record that begins at `offset` of the file.
std::string framed(std::string_view record, int64_t offset);

// Reads records one after the other, from a file's beginning, or from behind a record of it.
class LogReader {
 public:
  explicit LogReader(std::string_view file);
  LogReader(std::string_view part, size_t offset) : file_(part), begin_(offset) {}

  std::optional<std::string> next();  // nothing at the end, or where no whole record follows
  size_t position() const { return begin_ + position_; }  // behind the last record, in the file

  // Of what follows the last record: true where it is neither nothing nor the beginning of a record.
  bool damaged() const { return damaged_; }

 private:
  std::optional<std::string> assemble();

  std::string_view file_;
  size_t begin_ = 0;  // of it in the file
  size_t position_ = 0;
  bool damaged_ = false;
};

struct RunFacts {
  std::string id, project, entity, name, host;
  double start_s = 0;  // since 1970
  std::string config;  // a JSON object
};
std::string run_record(int64_t number, const RunFacts& run);
std::string config_record(int64_t number, const std::string& config);
std::string history_record(int64_t number, const StepRecord& row, double wall_s, double start_s);
std::string summary_record(int64_t number, const StepRecord& row);
std::string exit_record(int64_t number, double runtime_s);  // that the run is done
std::string final_record(int64_t number);

struct Record {
  enum class Kind { Run, History, Exit, Final, Other } kind = Kind::Other;
  int64_t number = 0;
  int64_t step = 0;                                        // History
  double start_s = 0;                                      // Run
  std::vector<std::pair<std::string, std::string>> items;  // History: names and JSON values
};
std::optional<Record> read_record(std::string_view bytes);  // nothing where it is none

}  // namespace tandem::wandb
