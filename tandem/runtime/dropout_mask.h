// Which elements dropout keeps: a pure function of seed, place in the model, sample, and element of the
// sample. So neither ranks, nor micro-batches, recomputation or a restart change it; CPU and CUDA agree.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tandem/base/device_function.h"
#include "tandem/base/normal_numbers.h"
#include "tandem/runtime/kernel.h"

namespace tandem {

struct DropoutMask {
  uint64_t seed;
  uint64_t site;       // which dropout of the model
  int64_t rows;        // of a sample
  int64_t first;       // row of the micro-batch that is the first one here
  int64_t width;       // of a row
  uint32_t threshold;  // an element whose random number is below this is dropped
  float scale;         // of those that are kept
};

// Of a sample's random numbers.
struct DropoutKey {
  uint64_t seed, stream;
};

// Far from the streams of starting weights and of the data's order, which are hashes of names.
inline constexpr uint64_t kDropoutStream = 0xd409000000000000ull;

TANDEM_HOST_DEVICE inline DropoutKey dropout_key(const DropoutMask& mask, uint64_t sample) {
  const PhiloxBlock block = philox_block(mask.seed, kDropoutStream + mask.site, sample);
  return {block.word[0] | uint64_t{block.word[1]} << 32, block.word[2] | uint64_t{block.word[3]} << 32};
}

// Where a row lies: its sample, counted from the micro-batch's first, and the element that it begins with.
struct DropoutRow {
  int64_t sample, begin;
};
TANDEM_HOST_DEVICE inline DropoutRow dropout_row(const DropoutMask& mask, int64_t row) {
  const int64_t at = mask.first + row;
  return {at / mask.rows, at % mask.rows * mask.width};
}

// Random numbers come four at a time: those of elements [4 i, 4 i + 4).
TANDEM_HOST_DEVICE inline PhiloxBlock dropout_block(const DropoutKey& key, int64_t i) {
  return philox_block(key.seed, key.stream, static_cast<uint64_t>(i));
}

// What a call of Dropout says.
inline DropoutMask dropout_mask(const KernelArgs& args) {
  const double rate = args.attrs.real("rate");
  return {.seed = static_cast<uint64_t>(args.attrs.integer_or("seed", 0)),
          .site = static_cast<uint64_t>(args.attrs.integer("site")),
          .rows = args.attrs.integer("rows"),
          .first = args.attrs.integer_or("first", 0),
          .width = args.in[0].type.shape.last(),
          .threshold = static_cast<uint32_t>(std::min(std::round(rate * 0x1p32), 0x1p32 - 1)),
          .scale = static_cast<float>(1 / (1 - rate))};
}

// The number of the micro-batch's first sample: i32[2], its lower half first.
TANDEM_HOST_DEVICE inline uint64_t first_sample(const int32_t* halves) {
  return static_cast<uint32_t>(halves[0]) | static_cast<uint64_t>(static_cast<uint32_t>(halves[1])) << 32;
}

}  // namespace tandem
