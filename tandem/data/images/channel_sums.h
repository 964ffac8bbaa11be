// Mean and deviation of the channels of a set. Sums are of whole numbers, so that the order of images, and
// with it the number of threads, changes no bit.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>

namespace tandem {

inline constexpr int64_t kMostImageChannels = 3;

struct ChannelSums {
  uint64_t pixels = 0;
  std::array<uint64_t, kMostImageChannels> sums = {}, squares = {};  // of values 0 to 255

  void add(std::span<const float> image, int64_t channels);  // [..., channels], rounded
  void add(const ChannelSums& other);
  bool operator==(const ChannelSums&) const = default;
};

nlohmann::json to_json(const ChannelSums& sums);
ChannelSums channel_sums_from(const nlohmann::json& json);

// A pixel of value v, 0 to 255, is v * factor + shift for the model.
struct ChannelScale {
  std::array<float, kMostImageChannels> factor, shift;
  static ChannelScale fixed();                      // (v / 255 - 0.5) / 0.25
  static ChannelScale of(const ChannelSums& sums);  // to mean 0 and deviation 1
};

}  // namespace tandem
