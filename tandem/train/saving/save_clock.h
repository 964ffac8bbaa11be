// When the next checkpoint is due by the clock, and how long one takes.
//
// A checkpoint after every T seconds costs d, for which training stands still, and each failure the work
// since the last one, T/2 on average. The sum is least at about sqrt(2 d M), where M is the time between
// failures (Young; Daly's formula has the next terms). d is measured. M begins as the config's and counts as
// one failure seen; every resume of the run is another, and all its hours count.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tandem/checkpoint/writer.h"
#include "tandem/config/config.h"
#include "tandem/watch/spot/notice.h"

namespace tandem {

class SaveClock {
 public:
  SaveClock(const CheckpointConfig& config, double now_s)
      : config_(config), start_s_(now_s), last_s_(now_s) {}

  // What a checkpoint remembers among its metrics, and how a resumed run goes on from it.
  nlohmann::json state(double now_s) const;
  void restore(const nlohmann::json& state);

  void begin_save(double now_s);
  void end_save(const SaveReport& report);

  bool is_due(double now_s) const;
  double interval_s(double now_s) const;  // infinite where nothing goes by the clock
  double mtbf_s(double now_s) const;
  // Until a save that begins now would be safe, one under way included; nothing before the first was seen.
  std::optional<double> time_of_save_s() const;
  // Why none should be begun after a notice; empty where one should.
  std::string why_no_save(const spot::Notice& notice, double unix_s) const;

 private:
  CheckpointConfig config_;
  double start_s_, last_s_;
  double earlier_s_ = 0;  // that the run took before this process
  int64_t resumes_ = 0;
  int64_t under_way_ = 0;
  std::optional<SaveReport> slowest_, newest_;
};

}  // namespace tandem
