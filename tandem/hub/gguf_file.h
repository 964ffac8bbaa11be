// GGUF, version 3: llama.cpp's files. Keys with values, then tensors, whose innermost dim comes first and
// whose bytes begin at multiples of 32.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/box.h"
#include "tandem/base/shape.h"

namespace tandem::hub {

enum class GgufType : uint32_t { F32 = 0, F16 = 1, Q8_0 = 8, BF16 = 30 };

int64_t gguf_bytes(GgufType type, int64_t elems);  // Q8_0: 34 bytes for each 32 elements
// q8_0 has a scale in fp16 and whole numbers from -127 to 127 for each 32 numbers of a row.
void to_gguf(std::span<const float> src, GgufType type, std::byte* dst);

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::F32;
  Shape shape;  // outermost first, as everywhere here

  int64_t bytes() const { return gguf_bytes(type, shape.elems()); }
};

class GgufWriter {
 public:
  void add(std::string_view key, uint32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, bool value);
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  void add(std::string_view key, const std::vector<std::string>& values);
  void add(std::string_view key, const std::vector<float>& values);
  void add(std::string_view key, const std::vector<int32_t>& values);

  // Gives rows of a tensor as fp32: of [first dim, product of the others], some at a time, in order.
  using GiveRows = std::function<void(size_t tensor, const Box& rows, std::span<float> dst)>;

  // The file appears whole or not at all. `told` is called with the bytes of weights written so far.
  void write(const std::filesystem::path& file, const std::vector<GgufTensor>& tensors, const GiveRows& give,
             const std::function<void(int64_t)>& told = {}) const;

 private:
  void begin(std::string_view key, uint32_t type);

  std::string keys_;
  uint64_t num_keys_ = 0;
};

}  // namespace tandem::hub
