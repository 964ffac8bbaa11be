#include "tandem/data/images/channel_sums.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tandem {

void ChannelSums::add(std::span<const float> image, int64_t channels) {
  const auto step = static_cast<size_t>(channels);
  for (size_t c = 0; c < step; ++c) {
    uint64_t sum = 0, square = 0;
    for (size_t i = c; i < image.size(); i += step) {
      const auto value = static_cast<uint64_t>(std::clamp(std::lround(image[i]), 0L, 255L));
      sum += value;
      square += value * value;
    }
    sums[c] += sum;
    squares[c] += square;
  }
  pixels += image.size() / step;
}

void ChannelSums::add(const ChannelSums& other) {
  pixels += other.pixels;
  for (size_t c = 0; c < sums.size(); ++c) {
    sums[c] += other.sums[c];
    squares[c] += other.squares[c];
  }
}

nlohmann::json to_json(const ChannelSums& sums) {
  return {{"pixels", sums.pixels}, {"sums", sums.sums}, {"squares", sums.squares}};
}

ChannelSums channel_sums_from(const nlohmann::json& json) {
  ChannelSums sums;
  sums.pixels = json.at("pixels");
  sums.sums = json.at("sums");
  sums.squares = json.at("squares");
  return sums;
}

ChannelScale ChannelScale::fixed() {
  ChannelScale scale{};
  scale.factor.fill(4.0f / 255.0f);
  scale.shift.fill(-2.0f);
  return scale;
}

ChannelScale ChannelScale::of(const ChannelSums& sums) {
  ChannelScale scale = fixed();
  if (sums.pixels == 0) return scale;
  const auto count = static_cast<double>(sums.pixels);
  for (size_t c = 0; c < scale.factor.size(); ++c) {
    const double mean = static_cast<double>(sums.sums[c]) / count;
    const double variance = static_cast<double>(sums.squares[c]) / count - mean * mean;
    const double deviation = std::sqrt(std::max(variance, 1.0));  // of a channel without any: one step of 255
    scale.factor[c] = static_cast<float>(1 / deviation);
    scale.shift[c] = static_cast<float>(-mean / deviation);
  }
  return scale;
}

}  // namespace tandem
