#include "tandem/data/mixture.h"

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem {

Mixture::Mixture(std::vector<Set> sets) : sets_(std::move(sets)) {
  TANDEM_CHECK(!sets_.empty());
  for (const Set& set : sets_) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + set.data->num_samples());
}

SampleSpec Mixture::spec() const {
  SampleSpec spec = sets_.front().data->spec();
  for (const Set& set : sets_) spec.num_classes = std::max(spec.num_classes, set.data->spec().num_classes);
  return spec;
}

Mixture::Place Mixture::place_of(int64_t index) const {
  TANDEM_CHECK(index >= 0 && index < num_samples());
  const auto set = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  return {*sets_[set].data, index - (set == 0 ? 0 : ends_[set - 1])};
}

void Mixture::fill(int64_t index, const SampleBuffers& out) const {
  const Place place = place_of(index);
  place.data.fill(place.index, out);
}

int64_t Mixture::num_valid_targets(int64_t index) const {
  const Place place = place_of(index);
  return place.data.num_valid_targets(place.index);
}

void Mixture::expect(int64_t index) const {
  const Place place = place_of(index);
  place.data.expect(place.index);
}

bool Mixture::knows_documents() const {
  return std::any_of(sets_.begin(), sets_.end(), [](const Set& set) { return set.data->knows_documents(); });
}

std::string Mixture::note() const {
  std::string notes;
  for (const Set& set : sets_) {
    const std::string note = set.data->note();
    if (!note.empty()) notes += (notes.empty() ? "" : "; ") + note;
  }
  return notes;
}

int64_t Mixture::num_left_out() const {
  int64_t sum = 0;
  for (const Set& set : sets_) sum += set.data->num_left_out();
  return sum;
}

std::vector<DatasetPart> Mixture::parts() const {
  std::vector<DatasetPart> parts;
  for (const Set& set : sets_) parts.push_back({set.data->num_samples(), set.weight});
  return parts;
}

}  // namespace tandem
