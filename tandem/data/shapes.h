// builtin:shapes: coloured shapes on a coloured ground, with noise. The shape is always recognisable, and a
// known share of the labels is wrong, so the best accuracy and the lowest cross-entropy are exact.
#pragma once

#include <string_view>

#include "tandem/data/dataset.h"

namespace tandem {

class Shapes final : public Dataset {
 public:
  static constexpr int64_t kNumClasses = 10;
  static constexpr std::string_view kNames[kNumClasses] = {"circle",    "square",  "triangle", "cross",
                                                           "ring",      "diamond", "frame",    "crescent",
                                                           "hourglass", "saltire"};
  static constexpr double kFlipped = 0.1;  // share of labels replaced by another class, each equally likely
  static constexpr int64_t kChannels = 3;
  static constexpr int64_t kMinSize = 16;  // pixels: below this the shapes are not told apart with certainty
  static constexpr int64_t kTrainSamples = 50'000;
  static constexpr int64_t kEvalSamples = 2'000;

  Shapes(int64_t size, Split split, uint64_t seed);  // images are size x size

  SampleSpec spec() const override;
  int64_t num_samples() const override { return split_ == Split::Train ? kTrainSamples : kEvalSamples; }
  void fill(int64_t index, const SampleBuffers& out) const override;  // pixel = (value in [0,1] - 0.5) / 0.25
  std::optional<double> loss_floor() const override;
  std::optional<double> best_accuracy() const override { return 1.0 - kFlipped; }

  int64_t true_class(int64_t index) const;  // before any flip

 private:
  int64_t size_;
  Split split_;
  uint64_t seed_;
};

}  // namespace tandem
