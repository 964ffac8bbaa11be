// Several sets as one: their samples one behind the other. How often each is drawn from is the sampler's
// part, by the weights.
#pragma once

#include <memory>
#include <vector>

#include "tandem/data/dataset.h"

namespace tandem {

class Mixture final : public Dataset {
 public:
  struct Set {
    std::unique_ptr<Dataset> data;
    double weight = 1.0;
  };
  explicit Mixture(std::vector<Set> sets);  // of one kind of sample

  SampleSpec spec() const override;
  int64_t num_samples() const override { return ends_.back(); }
  void fill(int64_t index, const SampleBuffers& out) const override;
  int64_t num_valid_targets(int64_t index) const override;
  void expect(int64_t index) const override;
  bool is_in_order() const override { return true; }
  bool knows_documents() const override;  // any of them does
  std::string note() const override;      // of all that have one
  int64_t num_left_out() const override;
  std::vector<DatasetPart> parts() const override;

 private:
  struct Place {
    const Dataset& data;
    int64_t index;
  };
  Place place_of(int64_t index) const;

  std::vector<Set> sets_;
  std::vector<int64_t> ends_;
};

}  // namespace tandem
