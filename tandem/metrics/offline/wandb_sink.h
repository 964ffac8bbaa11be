// wandb/offline-run-DATE_TIME-ID/run-ID.wandb: the rows for W&B. `wandb sync` takes the directory, whole, at
// any time. A resumed run goes on in the same file, behind what it keeps of it. What a run that is online
// writes is called run-DATE_TIME-ID, as W&B's own client does; either goes on with the other's.
#pragma once

#include <string>

#include "tandem/metrics/growing_file.h"
#include "tandem/metrics/offline/wandb_log.h"
#include "tandem/metrics/sink.h"

namespace tandem {

class WandbSink final : public Sink {
 public:
  explicit WandbSink(const SinkOptions& options, bool online = false);
  std::string resume(int64_t last) override;
  void write(const StepRecord& record) override;
  void sync() override;
  void finish() override;

  // After resume().
  wandb::RunFacts facts() const;
  const std::filesystem::path& path() const { return file_.path(); }
  int64_t bytes() const { return file_.size(); }  // of whole records

 private:
  void add(const std::string& record);
  void begin_file();
  void add_summary();

  std::filesystem::path folder_;
  std::string name_, config_;
  bool expected_, online_;
  std::string id_;
  double start_s_ = 0;   // of the run, since 1970
  int64_t records_ = 0;  // their number in the file
  StepRecord last_;      // whose summary is not written yet; step 0 for none
  GrowingFile file_;
};

}  // namespace tandem
