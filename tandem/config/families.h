// The families of models: what the config, the data and the plan have to know of each. The model itself is
// written with a builder, in tandem/models/<name>.cpp, as `build_<name>`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace tandem {

// Every family, by its enum value and by the name that users type.
#define TANDEM_FAMILIES(FAMILY) \
  FAMILY(Gpt2, gpt2)            \
  FAMILY(Llama, llama)          \
  FAMILY(Resnet, resnet)        \
  FAMILY(Mlp, mlp)

#define TANDEM_FAMILY_VALUE(value, name) value,
enum class Family { TANDEM_FAMILIES(TANDEM_FAMILY_VALUE) };
#undef TANDEM_FAMILY_VALUE

// What a family has; the keys of the config follow from it (keys.cpp).
enum FamilyTrait : unsigned {
  kReadsTokens = 1 << 0,        // sequences of tokens, whose next ones it predicts
  kReadsImages = 1 << 1,        // images, whose labels it predicts
  kEqualBlocks = 1 << 2,        // model.layers blocks of one shape
  kStages = 1 << 3,             // convolutions in stages of model.blocks, with model.norm between them
  kNorms = 1 << 4,              // normalises features: model.norm_eps
  kRotary = 1 << 5,             // rotary positions, key/value heads of their own, biases by choice
  kWeightedPositions = 1 << 6,  // a weight for each position of model.context
};

constexpr int64_t four_times(int64_t width) { return 4 * width; }
// So that three matrices of a gated feed-forward part have as many weights as two plain ones.
constexpr int64_t eight_thirds(int64_t width) { return (width * 8 / 3 + 63) / 64 * 64; }

struct FamilyInfo {
  std::string_view name;
  unsigned traits;
  int64_t width;                     // model.width where it is not given
  int64_t (*ffn_of)(int64_t width);  // model.ffn, likewise
  bool tied, qkv_bias;               // likewise
  bool has(unsigned trait) const { return (traits & trait) == trait; }
};

inline constexpr FamilyInfo kFamilies[] = {
    {"gpt2", kReadsTokens | kEqualBlocks | kNorms | kWeightedPositions, 384, four_times, true, true},
    {"llama", kReadsTokens | kEqualBlocks | kNorms | kRotary, 384, eight_thirds, false, false},
    {"resnet", kReadsImages | kStages | kNorms, 32, four_times, true, true},
    {"mlp", kReadsImages | kEqualBlocks, 384, four_times, true, true},
};

#define TANDEM_FAMILY_NAME(value, name) #name,
inline constexpr std::string_view kFamilyNames[] = {TANDEM_FAMILIES(TANDEM_FAMILY_NAME)};
#undef TANDEM_FAMILY_NAME

// The two lists above have the same families in the same order.
consteval bool lists_agree() {
  if (std::size(kFamilies) != std::size(kFamilyNames)) return false;
  for (size_t i = 0; i < std::size(kFamilies); ++i) {
    if (kFamilies[i].name != kFamilyNames[i]) return false;
  }
  return true;
}
static_assert(lists_agree());

constexpr const FamilyInfo& info_of(Family family) { return kFamilies[static_cast<size_t>(family)]; }

// A bit for each family that has any of the traits.
constexpr unsigned families_with(unsigned traits) {
  unsigned families = 0;
  for (size_t i = 0; i < std::size(kFamilies); ++i) {
    if ((kFamilies[i].traits & traits) != 0) families |= 1u << i;
  }
  return families;
}

}  // namespace tandem
