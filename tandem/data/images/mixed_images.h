// Mixup: in training an image is the weighted mean of itself and of another one of the set, and so is what
// the loss asks for. The weight is drawn from a beta distribution, both parameters `alpha`; the larger share
// is the image's own.
#pragma once

#include <memory>
#include <vector>

#include "tandem/base/rng.h"
#include "tandem/data/dataset.h"

namespace tandem {

// One number of the distribution with both parameters `alpha`, above 0.
double draw_beta(double alpha, RngCursor& draw);

class MixedImages final : public Dataset {
 public:
  MixedImages(std::unique_ptr<Dataset> whole, double alpha, uint64_t seed);

  SampleSpec spec() const override;
  int64_t num_samples() const override { return whole_->num_samples(); }
  void fill(int64_t index, const SampleBuffers& out) const override;
  int64_t num_valid_targets(int64_t index) const override { return whole_->num_valid_targets(index); }
  void expect(int64_t index) const override { whole_->expect(index); }
  std::vector<DatasetPart> parts() const override { return whole_->parts(); }
  bool is_in_order() const override { return whole_->is_in_order(); }
  std::string note() const override { return whole_->note(); }
  int64_t num_left_out() const override { return whole_->num_left_out(); }

 private:
  int64_t draw_partner(RngCursor& draw) const;

  std::unique_ptr<Dataset> whole_;
  double alpha_;
  uint64_t seed_;
  std::vector<DatasetPart> parts_;
  double weights_ = 0;
};

}  // namespace tandem
