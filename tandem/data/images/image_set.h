// Images from files as a data set: decoded, cut to a square, changed at random in training, scaled.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/images/augment.h"
#include "tandem/data/images/image_facts.h"

namespace tandem {

struct ImageOptions {
  Augmentation augmentation = {};
  bool skip_broken = false;
  ImageFacts facts = {};  // of the training set
};

class ImageSet final : public Dataset {
 public:
  struct Shape {
    int64_t side = 32, channels = 3;
  };
  // `note`: what a user should know of it.
  ImageSet(const std::string& place, std::unique_ptr<ImageSource> source, Split split, Shape shape,
           uint64_t seed, ImageOptions options, std::string note = {});

  SampleSpec spec() const override;
  int64_t num_samples() const override { return source_->num_images(); }
  // An image that cannot be read throws or, with skip_broken, is left out: in training the next one that can
  // be read takes its place, in evaluation it has no target. Each is told once.
  void fill(int64_t index, const SampleBuffers& out) const override;
  int64_t num_valid_targets(int64_t index) const override;
  void expect(int64_t index) const override { source_->expect(index); }
  bool is_in_order() const override { return true; }  // class by class
  std::string note() const override;
  int64_t num_left_out() const override;

 private:
  void fill_one(int64_t index, const SampleBuffers& out) const;
  bool is_broken(int64_t index) const;
  void leave_out(int64_t index, const std::string& why) const;

  std::unique_ptr<ImageSource> source_;
  Split split_;
  Shape shape_;
  uint64_t seed_;
  ImageOptions options_;
  std::string note_;
  std::vector<int32_t> labels_;  // of the source's
  mutable std::mutex mutex_;     // of what follows
  mutable std::unordered_set<int64_t> broken_;
};

// Any other set of images with the same random changes in training. A pixel of value v is black at
// `black`, white at `white`.
class ChangedImages final : public Dataset {
 public:
  ChangedImages(std::unique_ptr<Dataset> whole, const Augmentation& how, uint64_t seed, float black,
                float white);
  SampleSpec spec() const override { return whole_->spec(); }
  int64_t num_samples() const override { return whole_->num_samples(); }
  void fill(int64_t index, const SampleBuffers& out) const override;
  std::optional<double> loss_floor() const override { return whole_->loss_floor(); }
  std::optional<double> best_accuracy() const override { return whole_->best_accuracy(); }

 private:
  std::unique_ptr<Dataset> whole_;
  Augmentation how_;
  uint64_t seed_;
  float black_, white_;
};

}  // namespace tandem
