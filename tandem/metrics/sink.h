// Where the rows of a run's steps go: a file of some kind, a service. The promise is one for all, and
// sink_test.cpp asks every sink for it: whatever was killed and resumed in between, a reader finds each step
// exactly once, in order, as if the run had never stopped.
//
// A run that resumes from step 100 takes the steps after it again, though their rows may be there already.
// A sink whose rows can be taken back takes them back in resume(). One that only adds (W&B) begins a new file
// or session in resume() that says from which step on it counts, which readers of such files know how to
// follow; or it holds rows back until sync(), which comes before a checkpoint is saved: what has left by then
// is never taken back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tandem/metrics/histogram.h"
#include "tandem/metrics/step_record.h"

namespace tandem {

struct SinkOptions {
  std::filesystem::path run_dir;           // which exists
  CsvColumns columns = CsvColumns::Plain;  // of a new table; one that goes on keeps its own
  CountedIn unit = CountedIn::Tokens;      // of its rows
  bool expected = true;                    // to hold all rows up to the step resumed from
  int num_ranks = 1;
  std::string config = {};                                     // of the run, as YAML
  std::string config_json = {};                                // the same as JSON
  std::function<void(const std::string& sentence)> tell = {};  // what a sink has to say between rows
  // What the launcher knows of all ranks, as status.json has it; empty where there is none. Any thread may
  // ask.
  std::function<std::string()> places = {};
};

class Sink {
 public:
  virtual ~Sink() = default;

  // Once, before the first row: goes on behind step `last` (0: a fresh start, which forgets all rows). What
  // comes after it or is half written no reader sees any more. Returns a sentence where rows up to `last`
  // were damaged or, though expected, missing; empty where all is well.
  virtual std::string resume(int64_t last) = 0;

  // A step above all before it. A kill of this process after it returns does not lose the row.
  virtual void write(const StepRecord& record) = 0;

  // Returns when a power cut cannot lose the rows written so far.
  virtual void sync() = 0;

  // Of the step whose row was the last. Most sinks have no place for them.
  virtual void write_histograms(int64_t /*step*/, const std::vector<Histogram>& /*histograms*/) {}

  // The run has reached its end. Rows follow only where it is trained on later, after a resume().
  virtual void finish() {}
};

}  // namespace tandem
