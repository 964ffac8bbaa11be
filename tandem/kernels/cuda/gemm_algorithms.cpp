#include "tandem/kernels/cuda/gemm_algorithms.h"

#include <algorithm>
#include <vector>

#include "tandem/kernels/cuda/cuda_check.h"

namespace tandem::cuda {
namespace {

constexpr double kTrialBudget = 100;  // ms of the device, for one run of each after one that loads it
constexpr double kRoundBudget = 6;    // ms of the device, for each finalist in a round
constexpr int kRounds = 2, kMostRepeats = 10;
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
  std::vector<Trial> finals = trials;
  for (Trial& finalist : finals) finalist.ms = 0;
  // Rounds there and back: the GPU slows down as it takes power, which must not speak for those that came
  // first.
  for (int round = 0; round < kRounds; ++round) {
    for (size_t turn = 0; turn < finals.size(); ++turn) {
      const size_t i = round % 2 == 0 ? turn : finals.size() - 1 - turn;
      const int repeats =
          std::clamp(static_cast<int>(kRoundBudget / std::max(trials[i].ms, 1e-3)), 1, kMostRepeats);
      finals[i].ms += stopwatch.ms([&] {
        for (int r = 0; r < repeats; ++r) run(finals[i].alternative);
      }) / repeats / kRounds;
    }
  }
  const double tie = kTie * least_ms(finals);
  size_t best = num_alternatives;
  for (const Trial& finalist : finals) {
    if (finalist.ms <= tie) best = std::min(best, finalist.alternative);
  }
  return best;
}

}  // namespace tandem::cuda
