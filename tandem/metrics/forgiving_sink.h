// A sink that may fail without harm to the run: its disk is full, its server is away. The run goes on, is
// told once, and keeps the rows until the sink takes them again, up to a bound; then the oldest are dropped.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "tandem/metrics/sink.h"

namespace tandem {

class ForgivingSink final : public Sink {
 public:
  struct Patience {
    size_t rows = 100000;                   // that are kept
    std::chrono::milliseconds retry{1000};  // between two tries
  };
  using Tell = std::function<void(const std::string& sentence)>;
  ForgivingSink(std::unique_ptr<Sink> sink, Tell tell, Patience patience);
  ForgivingSink(std::unique_ptr<Sink> sink, Tell tell)
      : ForgivingSink(std::move(sink), std::move(tell), Patience{}) {}

  std::string resume(int64_t last) override;
  void write(const StepRecord& record) override;
  void sync() override;
  void write_histograms(int64_t step, const std::vector<Histogram>& histograms) override;
  void finish() override;

 private:
  void drain();  // throws what the sink throws

  // Runs `work`; false where it failed, which is told where it had not failed before.
  bool try_to(const std::function<void()>& work);

  std::unique_ptr<Sink> sink_;
  Tell tell_;
  Patience patience_;
  std::deque<StepRecord> kept_;
  int64_t dropped_ = 0;
  int64_t resume_at_ = 0;
  bool resumed_ = false;
  bool failing_ = false;
  std::chrono::steady_clock::time_point tried_;
};

}  // namespace tandem
