#include "tandem/metrics/forgiving_sink.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "tandem/base/quantity.h"

namespace tandem {

ForgivingSink::ForgivingSink(std::unique_ptr<Sink> sink, Tell tell, Patience patience)
    : sink_(std::move(sink)), tell_(std::move(tell)), patience_(patience) {}

std::string ForgivingSink::resume(int64_t last) {
  resume_at_ = last;
  std::string problem;
  try_to([&] {
    problem = sink_->resume(last);
    resumed_ = true;
  });
  return problem;
}

void ForgivingSink::write(const StepRecord& record) {
  kept_.push_back(record);
  if (kept_.size() > patience_.rows) {
    kept_.pop_front();
    ++dropped_;
  }
  if (failing_ && std::chrono::steady_clock::now() - tried_ < patience_.retry) return;
  try_to([this] { drain(); });
}

void ForgivingSink::sync() {
  try_to([this] {
    drain();
    sink_->sync();
  });
}

// They are large, and the next ones tell much the same: none waits.
void ForgivingSink::write_histograms(int64_t step, const std::vector<Histogram>& histograms) {
  if (failing_) return;
  try_to([&] {
    drain();
    sink_->write_histograms(step, histograms);
  });
}

void ForgivingSink::finish() {
  try_to([this] {
    drain();
    sink_->finish();
  });
}

void ForgivingSink::drain() {
  if (!resumed_) {
    if (const std::string problem = sink_->resume(resume_at_); !problem.empty() && tell_) tell_(problem);
    resumed_ = true;
  }
  for (; !kept_.empty(); kept_.pop_front()) sink_->write(kept_.front());
}

bool ForgivingSink::try_to(const std::function<void()>& work) {
  const size_t waiting = kept_.size();
  try {
    work();
  } catch (const std::exception& error) {
    tried_ = std::chrono::steady_clock::now();
    if (!std::exchange(failing_, true) && tell_)
      tell_(fmt::format("{}; training goes on, and rows wait for it", error.what()));
    return false;
  }
  if (std::exchange(failing_, false) && tell_) {
    const int64_t dropped = std::exchange(dropped_, 0);
    tell_(fmt::format("it takes rows again, and has caught up with {}{}",
                      count_of(static_cast<int64_t>(waiting), "row"),
                      dropped > 0 ? fmt::format("; {} were too many to keep", dropped) : ""));
  }
  return true;
}

}  // namespace tandem
