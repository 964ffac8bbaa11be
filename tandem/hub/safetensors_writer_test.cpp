#include "tandem/hub/safetensors_writer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tandem/base/file.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/hub/tensor_set.h"

namespace tandem::hub {
namespace {

const std::vector<OutTensor> kTensors = {
    {"z", DType::BF16, {3, 5}}, {"b", DType::F32, {7}},       {"scalar", DType::F32, {}},
    {"a", DType::BF16, {4, 2}}, {"none", DType::F16, {0, 4}}, {"wide", DType::F64, {2}},
};

// Byte i of a tensor is its name's first letter plus i.
std::byte byte_at(const OutTensor& tensor, int64_t i) { return static_cast<std::byte>(tensor.name[0] + i); }

void give(const OutTensor& tensor, const Box& rows, std::span<std::byte> dst) {
  const int64_t begin = rows.row_begin * rows.cols() * dtype_bytes(tensor.dtype);
  for (size_t i = 0; i < dst.size(); ++i) dst[i] = byte_at(tensor, begin + static_cast<int64_t>(i));
}

void expect_all(const std::filesystem::path& directory) {
  const TensorSet set(directory);
  EXPECT_EQ(kTensors.size(), set.by_name().size());
  for (const OutTensor& tensor : kTensors) {
    const SafeTensor* found = set.find(tensor.name);
    ASSERT_NE(nullptr, found) << tensor.name;
    EXPECT_EQ(tensor.shape, found->shape);
    ASSERT_EQ(static_cast<size_t>(tensor.bytes()), found->bytes.size());
    for (size_t i = 0; i < found->bytes.size(); ++i)
      ASSERT_EQ(byte_at(tensor, static_cast<int64_t>(i)), found->bytes[i]) << tensor.name;
  }
}

TEST(SafetensorsWriter, OneFileReadsBack) {
  const TemporaryDirectory directory;
  const WrittenWeights written = write_safetensors(directory.path(), kTensors, 1 << 20, give);
  EXPECT_EQ(std::vector<std::string>{"model.safetensors"}, written.files);
  EXPECT_EQ(30 + 28 + 4 + 16 + 16, written.bytes);
  expect_all(directory.path());
}

TEST(SafetensorsWriter, WidestTypesComeFirstAndTheHeaderIsPadded) {
  const TemporaryDirectory directory;
  write_safetensors(directory.path(), kTensors, 1 << 20, give);
  const std::string text = read_text(directory.path() / "model.safetensors");
  EXPECT_EQ(0, text[0] % 8);
  std::vector<size_t> places;
  for (const char* name : {"\"__metadata__\":{\"format\":\"pt\"}", "\"wide\"", "\"b\"", "\"scalar\"",
                           "\"none\"", "\"a\"", "\"z\""})
    places.push_back(text.find(name));
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
  EXPECT_NE(std::string::npos, places.back());
}

TEST(SafetensorsWriter, ShardsHoldAtMostWhatTheyMayAndHaveAnIndex) {
  const TemporaryDirectory directory;
  const WrittenWeights written = write_safetensors(directory.path(), kTensors, 40, give);
  EXPECT_EQ(3u, written.files.size());
  EXPECT_EQ("model-00001-of-00003.safetensors", written.files[0]);
  expect_all(directory.path());
  const auto index = nlohmann::json::parse(read_text(directory.path() / "model.safetensors.index.json"));
  EXPECT_EQ(written.bytes, index.at("metadata").at("total_size").get<int64_t>());
  EXPECT_EQ(kTensors.size(), index.at("weight_map").size());
}

}  // namespace
}  // namespace tandem::hub
