#include "tandem/kernels/cuda/gemm/gemm_algorithms.h"

#include <algorithm>
#include <vector>

#include "tandem/kernels/cuda/device/cuda_check.h"

namespace tandem::cuda {
namespace {

constexpr double kTrialBudget = 30;  // ms of the device, for one run of each after one that loads it
constexpr double kFinalBudget = 3;   // ms of the device, for each finalist
constexpr int kMostRepeats = 20;
constexpr size_t kMostFinalists = 4;
constexpr double kWorthRepeating = 1.15, kTie = 1.01;  // times the fastest

// Measures on the device, between two events in the queue.
class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t queue) : queue_(queue) {
    check(cudaEventCreate(&start_), "cudaEventCreate");
    check(cudaEventCreate(&stop_), "cudaEventCreate");
  }
  ~Stopwatch() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  double ms(const std::function<void()>& enqueue) const {
    check(cudaEventRecord(start_, queue_), "cudaEventRecord");
    enqueue();
    check(cudaEventRecord(stop_, queue_), "cudaEventRecord");
    check(cudaEventSynchronize(stop_), "timing alternatives");
    float elapsed = 0;
    check(cudaEventElapsedTime(&elapsed, start_, stop_), "cudaEventElapsedTime");
    return elapsed;
  }

 private:
  cudaStream_t queue_;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

struct Trial {
  size_t alternative;
  double ms;
};

double least_ms(const std::vector<Trial>& trials) {
  double least = trials.front().ms;
  for (const Trial& trial : trials) least = std::min(least, trial.ms);
  return least;
}

}  // namespace

std::optional<size_t> fastest(size_t num_alternatives, const std::function<bool(size_t)>& run,
                              cudaStream_t queue) {
  const Stopwatch stopwatch(queue);
  std::vector<Trial> trials;
  double spent = 0;
  for (size_t i = 0; i < num_alternatives && spent < kTrialBudget; ++i) {
    if (!run(i)) continue;  // the first run also loads the code, which is not to be measured
    const double ms = stopwatch.ms([&] { run(i); });
    trials.push_back({i, ms});
    spent += 2 * ms;
  }
  if (trials.empty()) return std::nullopt;

  const double limit = kWorthRepeating * least_ms(trials);
  std::erase_if(trials, [&](const Trial& trial) { return trial.ms > limit; });
  std::stable_sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) { return a.ms < b.ms; });
  trials.resize(std::min(trials.size(), kMostFinalists));
  for (Trial& trial : trials) {
    const int repeats =
        std::clamp(static_cast<int>(kFinalBudget / std::max(trial.ms, 1e-3)), 1, kMostRepeats);
    trial.ms = stopwatch.ms([&] {
      for (int r = 0; r < repeats; ++r) run(trial.alternative);
    }) / repeats;
  }
  const double tie = kTie * least_ms(trials);
  size_t best = num_alternatives;
  for (const Trial& trial : trials) {
    if (trial.ms <= tie) best = std::min(best, trial.alternative);
  }
  return best;
}

}  // namespace tandem::cuda
