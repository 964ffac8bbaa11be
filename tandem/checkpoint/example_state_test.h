// A few tensors of different types whose values follow from a number, and a fresh folder.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tandem/base/message_of_test.h"
#include "tandem/base/rng.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/checkpoint/reader.h"
#include "tandem/checkpoint/writer.h"

namespace tandem {

struct ExampleTensor {
  std::string name;
  DType dtype;
  Shape shape;
  std::vector<std::byte> bytes;
};

class ExampleState {
 public:
  // Odd sizes throughout, so that no tensor starts where an aligned one would.
  explicit ExampleState(uint64_t value, int64_t width = 300) {
    add("embed.weight", DType::F32, {7, width});
    add("block.0.scale", DType::BF16, {width + 1});
    add("data.mask", DType::U8, {13});
    add("adam.m.embed.weight", DType::F32, {7, width});
    add("step_count", DType::I32, {});
    fill(value);
  }
  void add(const std::string& name, DType dtype, Shape shape) {
    const auto bytes = static_cast<size_t>(shape.elems() * dtype_bytes(dtype));
    tensors.push_back({name, dtype, std::move(shape), std::vector<std::byte>(bytes)});
  }
  void fill(uint64_t value) {
    for (ExampleTensor& tensor : tensors) {
      const Rng rng(value, hash_name(tensor.name));
      for (size_t i = 0; i < tensor.bytes.size(); ++i) tensor.bytes[i] = static_cast<std::byte>(rng.bits(i));
    }
  }
  std::vector<TensorView> views() const {
    std::vector<TensorView> result;
    for (const ExampleTensor& tensor : tensors) {
      result.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
    }
    return result;
  }
  std::vector<TensorTarget> targets() {
    std::vector<TensorTarget> result;
    for (ExampleTensor& tensor : tensors)
      result.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
    return result;
  }
  bool operator==(const ExampleState& other) const {
    return std::equal(tensors.begin(), tensors.end(), other.tensors.begin(), other.tensors.end(),
                      [](const ExampleTensor& a, const ExampleTensor& b) { return a.bytes == b.bytes; });
  }

  std::vector<ExampleTensor> tensors;
};

// A checkpoints folder of its own for each test, removed afterwards.
class CheckpointTest : public testing::Test {
 protected:
  static CheckpointMeta at_step(int64_t step) {
    CheckpointMeta meta;
    meta.step = step;
    meta.epoch = 2;
    meta.samples = step * 32;
    meta.batch = 32;
    meta.loss = 1.25 + static_cast<double>(step) / 3;
    meta.scalars = {{"seed", 17}, {"loss_scale", 65536.0}};
    meta.config = {{"name", "example"}, {"lr", 1e-3}};
    return meta;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      result.push_back(entry.path().filename());
    std::sort(result.begin(), result.end());
    return result;
  }
  const TemporaryDirectory directory_;
  const std::filesystem::path folder = directory_.path() / "checkpoints";
};

}  // namespace tandem
