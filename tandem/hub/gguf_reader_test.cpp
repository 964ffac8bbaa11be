#include "tandem/hub/gguf_reader.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/hub/gguf_file.h"
#include "tandem/hub/gguf_model.h"
#include "tandem/hub/safetensors_test.h"

namespace tandem::hub {
namespace {

std::string u32(uint32_t value) { return little_endian(value).substr(0, 4); }
std::string text(const std::string& value) { return little_endian(value.size()) + value; }
std::string flag(const std::string& key, char byte) { return text(key) + u32(7) + byte; }

std::string tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t at) {
  std::string entry = text(name) + u32(static_cast<uint32_t>(dims.size()));
  for (uint64_t dim : dims) entry += little_endian(dim);
  return entry + u32(type) + little_endian(at);
}

std::string file_with(uint64_t num_tensors, uint64_t num_keys, const std::string& head, size_t data = 0) {
  std::string file = "GGUF" + u32(3) + little_endian(num_tensors) + little_endian(num_keys) + head;
  if (num_tensors > 0) file.append((32 - file.size() % 32) % 32, '\0');
  return file + std::string(data, 'x');
}

std::string refusal(const std::string& file) {
  return message_of<DataError>([&] { parse_gguf(bytes_of(file), "m.gguf"); });
}

TEST(GgufReader, ReadsWhatTheWriterWrote) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "m.gguf";
  GgufWriter writer;
  writer.add("general.architecture", "none");
  writer.add("none.count", 7u);
  writer.add("none.eps", 0.5f);
  writer.add("none.flag", true);
  writer.add("none.list", std::vector<std::string>{"a", "bc"});
  writer.write(path, {{"a", GgufType::Q8_0, {3, 64}}, {"b", GgufType::F32, {5}}, {"c", GgufType::BF16, {1}}},
               [](size_t, const Box&, std::span<float> dst) { std::fill(dst.begin(), dst.end(), 1.0f); });
  const GgufFile file(path);
  const GgufContents& found = file.contents();
  EXPECT_EQ(3u, found.version);
  EXPECT_EQ("none", found.text("general.architecture"));
  EXPECT_EQ(7, found.integer("none.count"));
  EXPECT_EQ(0.5, found.real("none.eps"));
  EXPECT_EQ(2u, found.length("none.list"));
  EXPECT_FALSE(found.integer("none.list"));
  EXPECT_FALSE(found.text("none.count"));
  ASSERT_EQ(3u, found.tensors.size());
  EXPECT_EQ("Q8_0", found.tensors[0].type);
  EXPECT_EQ(Shape({3, 64}), found.tensors[0].shape);
  EXPECT_EQ(6u * 34, found.tensors[0].bytes.size());
  EXPECT_EQ(20u, found.tensors[1].bytes.size());
  EXPECT_EQ(2u, found.tensors[2].bytes.size());
  EXPECT_EQ(3 * 64 + 5 + 1, gguf_parameters(found));
  EXPECT_EQ("architecture 'none'", std::get<std::string>(gguf_model(found, "m.gguf")));
}

TEST(GgufReader, RefusesWhatIsNoGguf) {
  EXPECT_EQ("m.gguf: is no GGUF file: it does not begin with GGUF", refusal("GGU"));
  EXPECT_EQ("m.gguf: is no GGUF file: it does not begin with GGUF", refusal("GGML1234"));
  EXPECT_NE(std::string::npos, refusal("GGUF" + u32(1)).find("version 2 or 3, found 1"));
  EXPECT_NE(std::string::npos, refusal("GGUF" + u32(0x03000000)).find("the other order of bytes"));
  EXPECT_NE(std::string::npos, refusal("GGUF" + u32(3) + "1234567").find("is cut"));
}

TEST(GgufReader, RefusesCountsAndLengthsThatTheFileCannotHold) {
  EXPECT_NE(std::string::npos, refusal(file_with(0, UINT64_MAX, "")).find("18446744073709551615 keys"));
  EXPECT_NE(std::string::npos, refusal(file_with(1ull << 40, 0, "")).find("1099511627776 tensors"));
  EXPECT_NE(std::string::npos, refusal(file_with(0, 1, little_endian(UINT64_MAX) + std::string(20, 'k')))
                                   .find("a key should have 18446744073709551615 bytes"));
  EXPECT_NE(std::string::npos,
            refusal(file_with(0, 1, text("k") + u32(8) + little_endian(100) + "x")).find("100 bytes"));
  EXPECT_NE(
      std::string::npos,
      refusal(file_with(0, 1, text("k") + u32(9) + u32(10) + little_endian(1ull << 61))).find("of u64"));
  EXPECT_NE(
      std::string::npos,
      refusal(file_with(0, 1, text("k") + u32(9) + u32(8) + little_endian(3) + text("a"))).find("of str"));
}

TEST(GgufReader, RefusesKeysThatLie) {
  EXPECT_NE(std::string::npos,
            refusal(file_with(0, 1, text("k") + u32(13) + "xxxxxxx")).find("unknown type 13"));
  EXPECT_NE(std::string::npos, refusal(file_with(0, 1, flag("k", 2))).find("neither true nor false"));
  EXPECT_EQ("m.gguf: key 'k' is there twice", refusal(file_with(0, 2, flag("k", 1) + flag("k", 1))));
  EXPECT_NE(std::string::npos, refusal(file_with(0, 1, flag("", 1) + "xxxx")).find("no name"));
  EXPECT_NE(std::string::npos, refusal(file_with(0, 1, flag("\xff", 1))).find("no name"));
  EXPECT_NE(std::string::npos,
            refusal(file_with(0, 1, text("k") + u32(9) + u32(9) + little_endian(0))).find("array of arrays"));
  for (uint32_t alignment : {0u, 3u, 33u}) {
    EXPECT_NE(
        std::string::npos,
        refusal(file_with(0, 1, text("general.alignment") + u32(4) + u32(alignment))).find("power of two"));
  }
  EXPECT_NE(std::string::npos, refusal(file_with(0, 1, flag("general.alignment", 1))).find("power of two"));
}

TEST(GgufReader, RefusesTensorsThatLie) {
  const auto one = [](const std::string& entry, size_t data) {
    return refusal(file_with(1, 0, entry, data));
  };
  EXPECT_NO_THROW(parse_gguf(bytes_of(file_with(1, 0, tensor("a", {2, 3}, 0, 0), 24)), "m"));
  EXPECT_NO_THROW(parse_gguf(bytes_of(file_with(1, 0, tensor("a", {2, 3}, 0, 0), 32)), "m"));
  EXPECT_NE(std::string::npos, one(tensor("a", {2, 3}, 0, 0), 23).find("is cut: tensor 'a' has 24 bytes"));
  EXPECT_NE(std::string::npos, one(tensor("a", {2, 3}, 0, 0), 33).find("1 bytes behind its last tensor"));
  EXPECT_NE(std::string::npos, one(tensor("a", {2, 3}, 0, 32), 64).find("begins at byte 32, expected 0"));
  EXPECT_NE(std::string::npos, one(tensor("a", {2, 3}, 4, 0), 32).find("unknown type 4"));
  EXPECT_NE(std::string::npos, one(tensor("a", {1, 1, 1, 1, 1}, 0, 0), 32).find("5 dims"));
  EXPECT_NE(std::string::npos, one(tensor("a", {33}, 8, 0), 64).find("whole blocks of 32, found 33"));
  EXPECT_NE(std::string::npos, one(tensor("a", {1ull << 32, 1ull << 31}, 0, 0), 32).find("overflows"));
  EXPECT_NE(std::string::npos, one(tensor("a", {1ull << 62, 1}, 28, 0), 32).find("overflows"));
  EXPECT_NE(std::string::npos, one(tensor("a", {UINT64_MAX}, 0, 0), 32).find("overflows"));
  EXPECT_NE(std::string::npos, one(tensor(std::string(64, 'n'), {1}, 0, 0), 32).find("64 bytes"));
  EXPECT_EQ("m.gguf: tensor 'a' is there twice",
            refusal(file_with(2, 0, tensor("a", {8}, 0, 0) + tensor("a", {8}, 0, 32), 64)));
  EXPECT_NE(std::string::npos, refusal(file_with(2, 0, tensor("a", {8}, 0, 0) + tensor("b", {8}, 0, 0), 64))
                                   .find("'b' begins at byte 0, expected 32"));
}

}  // namespace
}  // namespace tandem::hub
