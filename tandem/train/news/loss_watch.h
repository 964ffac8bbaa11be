// Whether the loss does what it usually does. A step whose loss stands far above those before it is a spike;
// one that does not come down again within kPatience steps is told as a run that diverges, though every
// number of it may be finite (divergence.h looks for those that are not).
//
// What is usual is the mean and the deviation of about the last kMemory steps. A spike is not learned from,
// else it would become what is usual while it lasts; once a run was told to diverge, it is learned anew.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "tandem/data/loader.h"
#include "tandem/train/journal.h"
#include "tandem/train/step_runner.h"

namespace tandem {

class LossWatch {
 public:
  static constexpr int64_t kFirst = 20;      // steps before there is anything usual
  static constexpr double kMemory = 50;      // steps
  static constexpr double kDeviations = 6;   // above the mean, ...
  static constexpr double kLeastRise = 0.1;  // ... and this part of it, where losses hardly differ
  static constexpr int64_t kPatience = 50;   // steps

  struct News {
    enum class Kind { Spike, Diverging } kind;
    double usual;   // the mean before it
    int64_t since;  // the step at which the loss left it
  };

  // Losses that are not finite are another's.
  std::optional<News> add(int64_t step, double loss) {
    if (!std::isfinite(loss)) return std::nullopt;
    const double limit = mean_ + std::max(kDeviations * std::sqrt(variance_), kLeastRise * std::abs(mean_));
    const bool high = seen_ >= kFirst && loss > limit;
    std::optional<News> news;
    if (high && since_ == 0) {
      since_ = step;
      news = News{News::Kind::Spike, mean_, step};
    } else if (high && step - since_ == kPatience) {
      news = News{News::Kind::Diverging, mean_, since_};
      *this = LossWatch();
    } else if (!high) {
      since_ = 0;
    }
    if (!high) learn(loss);
    return news;
  }

 private:
  void learn(double loss) {
    ++seen_;
    const double weight = 1 / std::min(static_cast<double>(seen_), kMemory);
    const double off = loss - mean_;
    mean_ += weight * off;
    variance_ = (1 - weight) * (variance_ + weight * off * off);
  }

  double mean_ = 0, variance_ = 0;
  int64_t seen_ = 0, since_ = 0;
};

// Tells the journal, with the samples of the step's batch.
void tell_news(const std::optional<LossWatch::News>& news, int64_t step, const StepResult& result,
               const Loader& loader, Journal& journal);

}  // namespace tandem
