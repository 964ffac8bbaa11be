#include "tandem/data/shapes.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"

namespace tandem {
namespace {

// Whether (x, y), in units of the shape's half extent, lies in the shape.
bool inside(int64_t shape, float x, float y) {
  const float ax = std::abs(x), ay = std::abs(y);
  const float r2 = x * x + y * y;
  switch (shape) {
    case 0: return r2 < 1.0f;                                                   // circle
    case 1: return ax < 0.85f && ay < 0.85f;                                    // square
    case 2: return y < 0.85f && y > -0.95f && ax < 0.5f * (y + 0.95f) + 0.05f;  // triangle
    case 3: return (ax < 0.3f && ay < 1.0f) || (ay < 0.3f && ax < 1.0f);        // cross
    case 4: return r2 < 1.0f && r2 > 0.36f;                                     // ring
    case 5: return ax + ay < 1.0f;                                              // diamond
    case 6: return std::max(ax, ay) < 0.9f && std::max(ax, ay) > 0.55f;         // frame
    case 7: return r2 < 1.0f && (x - 0.5f) * (x - 0.5f) + y * y > 0.5f;         // crescent
    case 8: return ay < 0.95f && ax < 0.85f * ay + 0.05f;                       // hourglass
    default:
      return std::max(ax, ay) < 0.95f && std::min(std::abs(x - y), std::abs(x + y)) < 0.45f;  // saltire
  }
}

struct Colour {
  float channel[Shapes::kChannels];
};

}  // namespace

Shapes::Shapes(int64_t size, Split split, uint64_t seed)
    : size_(size),
      split_(split),
      seed_(mix_bits(seed ^ hash_name(split == Split::Train ? "shapes.train" : "shapes.eval"))) {
  TANDEM_CHECK(size >= kMinSize);
}

SampleSpec Shapes::spec() const {
  return {.kind = SampleKind::Images,
          .height = size_,
          .width = size_,
          .channels = kChannels,
          .num_classes = kNumClasses};
}

// -0.9 ln 0.9 - 0.1 ln(0.1 / 9): the entropy of the label when the shape is known.
std::optional<double> Shapes::loss_floor() const {
  return -(1.0 - kFlipped) * std::log(1.0 - kFlipped) - kFlipped * std::log(kFlipped / (kNumClasses - 1));
}

int64_t Shapes::true_class(int64_t index) const {
  return static_cast<int64_t>(Rng(seed_, static_cast<uint64_t>(index)).below(0, kNumClasses));
}

void Shapes::fill(int64_t index, const SampleBuffers& out) const {
  TANDEM_CHECK(index >= 0 && index < num_samples());
  RngCursor draw(seed_, static_cast<uint64_t>(index));
  const auto shape = static_cast<int64_t>(draw.below(kNumClasses));  // the draw of true_class
  const bool flipped = draw.uniform() < kFlipped;
  const auto other = static_cast<int64_t>(draw.below(kNumClasses - 1));
  *out.targets = static_cast<int32_t>(flipped ? other + (other >= shape ? 1 : 0) : shape);

  const auto size = static_cast<float>(size_);
  const float radius = size * (0.22f + 0.18f * draw.uniform());
  const float x0 = radius + (size - 2.0f * radius) * draw.uniform();
  const float y0 = radius + (size - 2.0f * radius) * draw.uniform();
  const bool light_on_dark = draw.below(2) == 1;  // so that the shape always stands out
  Colour ground{}, ink{};
  for (int64_t c = 0; c < kChannels; ++c) {
    const float dark = 0.4f * draw.uniform(), light = 0.6f + 0.4f * draw.uniform();
    ground.channel[c] = light_on_dark ? dark : light;
    ink.channel[c] = light_on_dark ? light : dark;
  }

  const Rng noise(seed_ ^ hash_name("shapes.noise"), static_cast<uint64_t>(index));
  constexpr float kNoise = 0.06f;
  float normals[4] = {};
  for (int64_t pixel = 0; pixel < size_ * size_; ++pixel) {
    const float x = (static_cast<float>(pixel % size_) + 0.5f - x0) / radius;
    const float y = (static_cast<float>(pixel / size_) + 0.5f - y0) / radius;
    const Colour& colour = inside(shape, x, y) ? ink : ground;
    for (int64_t c = 0; c < kChannels; ++c) {
      const int64_t i = pixel * kChannels + c;
      if (i % 4 == 0) noise.normals(static_cast<uint64_t>(i / 4), normals);
      const float value = std::clamp(colour.channel[c] + kNoise * normals[i % 4], 0.0f, 1.0f);
      out.image[i] = (value - 0.5f) / 0.25f;
    }
  }
}

}  // namespace tandem
