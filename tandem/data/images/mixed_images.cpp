#include "tandem/data/images/mixed_images.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {
namespace {

// In (0, 1).
double draw_open(RngCursor& draw) { return static_cast<double>(draw.uniform()) + 0x1p-25; }

// Joehnk's way, for alpha up to 1, in logarithms: of tiny alphas the powers are below what a double holds.
double draw_narrow(double alpha, RngCursor& draw) {
  for (;;) {
    const double x = std::log(draw_open(draw)) / alpha, y = std::log(draw_open(draw)) / alpha;
    if (std::exp(x) + std::exp(y) <= 1) return 1 / (1 + std::exp(y - x));
  }
}

// Cheng's rejection from a logistic curve, for alpha above 1.
double draw_wide(double alpha, RngCursor& draw) {
  const double slope = 1 / std::sqrt(alpha), gain = alpha + std::sqrt(alpha);
  for (;;) {
    const double u = draw_open(draw), v = draw_open(draw);
    const double logit = slope * std::log(u / (1 - u)), w = alpha * std::exp(logit);
    const double reach = gain * logit - std::log(4.0), bound = std::log(u * u * v);
    if (reach + 2 * alpha * std::log(2 * alpha / (alpha + w)) >= bound) return w / (alpha + w);
  }
}

}  // namespace

double draw_beta(double alpha, RngCursor& draw) {
  return alpha <= 1 ? draw_narrow(alpha, draw) : draw_wide(alpha, draw);
}

MixedImages::MixedImages(std::unique_ptr<Dataset> whole, double alpha, uint64_t seed)
    : whole_(std::move(whole)),
      alpha_(alpha),
      seed_(mix_bits(seed ^ hash_name("mixup"))),
      parts_(whole_->parts()) {
  TANDEM_CHECK(whole_->spec().kind == SampleKind::Images && alpha > 0);
  for (const DatasetPart& part : parts_) weights_ += part.weight;
}

SampleSpec MixedImages::spec() const {
  SampleSpec spec = whole_->spec();
  spec.mixed = true;
  return spec;
}

// As the order of training draws: a part by its weight, then any of its samples.
int64_t MixedImages::draw_partner(RngCursor& draw) const {
  double left = static_cast<double>(draw.uniform()) * weights_;
  int64_t begin = 0;
  size_t part = 0;
  for (; part + 1 < parts_.size() && left >= parts_[part].weight; ++part) {
    left -= parts_[part].weight;
    begin += parts_[part].num_samples;
  }
  return begin + static_cast<int64_t>(draw.below(static_cast<uint64_t>(parts_[part].num_samples)));
}

void MixedImages::fill(int64_t index, const SampleBuffers& out) const {
  whole_->fill(index, out);
  if (out.partner != nullptr) *out.partner = *out.targets;
  if (out.share != nullptr) *out.share = 1;
  if (out.draw < 0) return;
  TANDEM_CHECK(out.partner != nullptr && out.share != nullptr);
  RngCursor draw(seed_, static_cast<uint64_t>(out.draw));
  const double drawn = draw_beta(alpha_, draw);
  const auto share = static_cast<float>(std::max(drawn, 1 - drawn));
  // A number of its own, so that it is not changed at random in the same way.
  constexpr int64_t kPartner = int64_t{1} << 62;
  thread_local std::vector<float> other;
  other.resize(static_cast<size_t>(whole_->spec().input_elems()));
  whole_->fill(draw_partner(draw),
               {.image = other.data(), .targets = out.partner, .draw = out.draw | kPartner});
  *out.share = share;
  for (size_t i = 0; i < other.size(); ++i) out.image[i] = share * out.image[i] + (1 - share) * other[i];
}

}  // namespace tandem
