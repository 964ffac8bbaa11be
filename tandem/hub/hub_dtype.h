// Element types by the names that safetensors files have for them, and conversions between those that hold
// weights and fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tandem/base/dtype.h"

namespace tandem::hub {

// Bits of an element of a type that the format knows ("BF16": 16); nothing for any other name.
std::optional<int64_t> bits_of(std::string_view name);

// Of the types that a weight may have: F64, F32, F16, BF16. Nothing for all others.
std::optional<DType> weight_dtype(std::string_view name);
std::string_view safetensors_name(DType dtype);  // "F32", of the same four

// As config.json spells it, with or without "torch.": "bfloat16". Nothing for what no weight may have.
std::optional<DType> parse_torch_dtype(std::string_view name);
std::string_view torch_name(DType dtype);

// Elements of `src`, of a weight's type; as many as `dst` has.
void to_floats(const std::byte* src, DType dtype, std::span<float> dst);
// To nearest even; `dst` has the bytes of src.size() elements. The other way round gives the same bits.
void from_floats(std::span<const float> src, DType dtype, std::byte* dst);

}  // namespace tandem::hub
