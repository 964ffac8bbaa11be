#include "tandem/data/sampler.h"

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/data/permutation.h"

namespace tandem {
namespace {

// The sample of a shuffled set that comes at `position`, counted over epochs.
int64_t shuffled(int64_t num_samples, uint64_t seed, int64_t position) {
  const auto epoch = static_cast<uint64_t>(position / num_samples);
  return Permutation(num_samples, mix_bits(seed + epoch))(position % num_samples);
}

}  // namespace

Sampler::Sampler(std::vector<DatasetPart> parts, bool shuffle, uint64_t seed)
    : parts_(std::move(parts)), shuffle_(shuffle), seed_(mix_bits(seed ^ hash_name("sampler"))) {
  std::vector<double> weights;
  for (const DatasetPart& part : parts_) {
    num_samples_ += part.num_samples;
    weights.push_back(part.weight);
  }
  if (shuffle && parts_.size() > 1) order_.emplace(weights, seed_);
  begin({});
}

void Sampler::begin(MixtureStart start) {
  if (start.positions.empty()) start.positions.resize(parts_.size());
  TANDEM_CHECK(start.positions.size() == parts_.size() && start.sample >= 0);
  start_ = std::move(start);
}

int64_t Sampler::index(int64_t global_sample) const {
  if (!shuffle_) return global_sample % num_samples_;
  if (!order_) return shuffled(num_samples_, seed_, global_sample);
  const MixtureOrder::Draw draw = (*order_)(global_sample - start_.sample);
  int64_t first = 0;
  for (size_t set = 0; set < draw.set; ++set) first += parts_[set].num_samples;
  return first + shuffled(parts_[draw.set].num_samples, mix_bits(seed_ ^ (draw.set + 1)),
                          start_.positions[draw.set] + draw.number);
}

std::vector<int64_t> Sampler::positions(int64_t global_sample) const {
  if (!order_) return {global_sample};
  std::vector<int64_t> positions = order_->counts(global_sample - start_.sample);
  for (size_t set = 0; set < positions.size(); ++set) positions[set] += start_.positions[set];
  return positions;
}

}  // namespace tandem
