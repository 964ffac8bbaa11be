#include "tandem/train/saving/save_clock.h"
#include "tandem/train/saving/save_interval.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace tandem {
namespace {

// Before the first save was seen: what it costs is not known, and it should not be late.
constexpr double kFirst_s = 60;
// Of a save that costs next to nothing.
constexpr double kLeast_s = 10;

}  // namespace

nlohmann::json SaveClock::state(double now_s) const {
  return {{"run_s", earlier_s_ + now_s - start_s_}, {"resumes", resumes_}};
}

void SaveClock::restore(const nlohmann::json& state) {
  earlier_s_ = state.value("run_s", 0.0);  // older versions have none
  resumes_ = state.value("resumes", int64_t{0}) + 1;
}

void SaveClock::begin_save(double now_s) {
  last_s_ = now_s;
  ++under_way_;
}

void SaveClock::end_save(const SaveReport& report) {
  under_way_ = std::max<int64_t>(0, under_way_ - 1);
  newest_ = report;
  if (!slowest_ || report.write_s + report.snapshot_s > slowest_->write_s + slowest_->snapshot_s)
    slowest_ = report;
}

double SaveClock::mtbf_s(double now_s) const {
  const double seen_s = earlier_s_ + now_s - start_s_;
  return (config_.mtbf * 3600 + seen_s) / static_cast<double>(1 + resumes_);
}

double SaveClock::interval_s(double now_s) const {
  double interval = config_.minutes > 0 ? config_.minutes * 60 : std::numeric_limits<double>::infinity();
  if (!config_.every.automatic) return interval;
  if (!newest_) return std::min(interval, kFirst_s);
  const double cost_s = newest_->snapshot_s + (config_.async ? 0 : newest_->write_s);
  // One that is not written yet when the next begins would make training wait for it.
  const double least_s = std::max(kLeast_s, newest_->write_s);
  return std::min(interval, std::max(least_s, daly_interval_s(cost_s, mtbf_s(now_s))));
}

bool SaveClock::is_due(double now_s) const { return now_s - last_s_ >= interval_s(now_s); }

std::optional<double> SaveClock::time_of_save_s() const {
  if (!slowest_) return std::nullopt;
  return (slowest_->snapshot_s + slowest_->write_s) * static_cast<double>(1 + under_way_);
}

std::string SaveClock::why_no_save(const spot::Notice& notice, double unix_s) const {
  if (!config_.on_notice) return "checkpoint.on_notice is false";
  const std::optional<double> takes = time_of_save_s();
  if (!takes || !notice.at_s || *takes <= *notice.at_s - unix_s) return "";
  return fmt::format("a save takes about {:.1f} s and {:.1f} s are left", *takes, *notice.at_s - unix_s);
}

}  // namespace tandem
