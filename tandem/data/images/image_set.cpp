#include "tandem/data/images/image_set.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/data/images/image_view.h"
#include "tandem/data/images/resize.h"

namespace tandem {
namespace {

uint64_t augment_key(uint64_t seed) { return mix_bits(seed ^ hash_name("augment")); }

}  // namespace

ImageSet::ImageSet(const std::string& place, std::unique_ptr<ImageSource> source, Split split, Shape shape,
                   uint64_t seed, ImageOptions options, std::string note)
    : source_(std::move(source)),
      split_(split),
      shape_(shape),
      seed_(augment_key(seed)),
      options_(std::move(options)),
      note_(std::move(note)) {
  if (options_.facts.classes.empty()) options_.facts.classes = source_->classes();
  labels_ = labels_among(*source_, options_.facts.classes, place);
}

SampleSpec ImageSet::spec() const {
  return {.kind = SampleKind::Images,
          .height = shape_.side,
          .width = shape_.side,
          .channels = shape_.channels,
          .num_classes = static_cast<int64_t>(options_.facts.classes.size())};
}

void ImageSet::fill(int64_t index, const SampleBuffers& out) const {
  TANDEM_CHECK(index >= 0 && index < num_samples());
  if (!options_.skip_broken) return fill_one(index, out);
  const int64_t count = num_samples();
  for (int64_t tried = 0; tried < count; ++tried) {
    const int64_t at = (index + tried) % count;
    try {
      if (!is_broken(at)) return fill_one(at, out);
    } catch (const DataError& error) {
      leave_out(at, error.what());
    }
    if (split_ == Split::Train) continue;
    std::fill_n(out.image, spec().input_elems(), 0.0f);
    *out.targets = kNoTarget;
    return;
  }
  throw DataError("{}: none of {} images can be read", source_->name(index), count);
}

void ImageSet::fill_one(int64_t index, const SampleBuffers& out) const {
  RngCursor draw(seed_, static_cast<uint64_t>(out.draw));
  const bool training = out.draw >= 0;
  Augmentation how = options_.augmentation;
  ViewOptions view{
      .side = shape_.side, .channels = shape_.channels, .crop = how.crop, .draw = training ? &draw : nullptr};
  // What comes last is done on the way, where nothing else comes between.
  const ChannelScale& scale = options_.facts.scale;
  const bool plain = !training || (how.pad == 0 && how.color == 0);
  if (plain) view.finish = {.factor = scale.factor, .shift = scale.shift};
  if (how.pad == 0) view.flip = std::exchange(how.flip, false);
  view_image(source_->read(index), source_->name(index), view, out.image);
  if (training) augment(how, shape_.side, shape_.channels, 0, 255, draw, out.image);
  const auto channels = static_cast<size_t>(shape_.channels);
  for (int64_t i = 0; !plain && i < shape_.side * shape_.side; ++i) {
    float* pixel = out.image + i * shape_.channels;
    for (size_t c = 0; c < channels; ++c) pixel[c] = pixel[c] * scale.factor[c] + scale.shift[c];
  }
  *out.targets = labels_[static_cast<size_t>(source_->label(index))];
}

bool ImageSet::is_broken(int64_t index) const {
  const std::lock_guard lock(mutex_);
  return broken_.contains(index);
}

void ImageSet::leave_out(int64_t index, const std::string& why) const {
  const std::lock_guard lock(mutex_);
  if (!broken_.insert(index).second) return;
  const std::string place = source_->name(index);
  std::string reason = why.starts_with(place + ": ") ? why.substr(place.size() + 2) : why;
  reason = reason.substr(0, reason.find(';'));
  std::fprintf(stderr, "warning: %s: %s; is left out (data.broken: skip), %zu so far\n", place.c_str(),
               reason.c_str(), broken_.size());
}

int64_t ImageSet::num_valid_targets(int64_t index) const {
  return split_ == Split::Eval && options_.skip_broken && is_broken(index) ? 0 : 1;
}

std::string ImageSet::note() const {
  const std::string& made = options_.facts.note;
  return note_.empty() || made.empty() ? note_ + made : note_ + "\n" + made;
}

int64_t ImageSet::num_left_out() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(broken_.size());
}

ChangedImages::ChangedImages(std::unique_ptr<Dataset> whole, const Augmentation& how, uint64_t seed,
                             float black, float white)
    : whole_(std::move(whole)), how_(how), seed_(augment_key(seed)), black_(black), white_(white) {}

void ChangedImages::fill(int64_t index, const SampleBuffers& out) const {
  whole_->fill(index, out);
  if (out.draw < 0) return;
  const SampleSpec spec = whole_->spec();
  RngCursor draw(seed_, static_cast<uint64_t>(out.draw));
  if (how_.crop > 0) {
    thread_local std::vector<float> copy;
    copy.assign(out.image, out.image + spec.input_elems());
    const ImageSize size{spec.height, spec.width};
    resize(copy.data(), size, spec.channels, random_box(size, how_.crop, draw), spec.height, {}, out.image);
  }
  augment(how_, spec.height, spec.channels, black_, white_, draw, out.image);
}

}  // namespace tandem
