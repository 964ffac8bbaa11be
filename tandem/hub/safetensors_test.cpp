#include "tandem/hub/safetensors.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/hub/safetensors_test.h"

namespace tandem::hub {
namespace {

std::string refusal(const std::string& file) {
  return message_of<DataError>([&] { parse_safetensors(bytes_of(file), "m.safetensors"); });
}

// Of a header that stands for `bytes` of data.
std::string refusal_of(const std::string& header, size_t bytes = 0) {
  return refusal(file_of(header, std::string(bytes, 'x')));
}

TEST(Safetensors, ReadsWhatIsThereInTheOrderOfPlaces) {
  const std::string file =
      file_of(R"({"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},"a":{"dtype":"BF16","shape":[2],)"
              R"("data_offsets":[0,4]},"__metadata__":{"format":"pt"}}   )",
              std::string(4, 'a') + std::string(8, 'b'));
  std::map<std::string, std::string> metadata;
  const auto tensors = parse_safetensors(bytes_of(file), "m.safetensors", &metadata);
  ASSERT_EQ(2u, tensors.size());
  EXPECT_EQ("a", tensors[0].name);
  EXPECT_EQ("BF16", tensors[0].dtype);
  EXPECT_EQ(Shape({2}), tensors[0].shape);
  EXPECT_EQ(4u, tensors[0].bytes.size());
  EXPECT_EQ(std::byte{'b'}, tensors[1].bytes[7]);
  EXPECT_EQ("pt", metadata.at("format"));
}

TEST(Safetensors, EmptyTensorsAndScalarsAreLegal) {
  const std::string file = file_of(
      R"({"scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"empty":{"dtype":"F16","shape":[3,0],)"
      R"("data_offsets":[4,4]},"first":{"dtype":"F16","shape":[0],"data_offsets":[0,0]}})",
      "1234");
  const auto tensors = parse_safetensors(bytes_of(file), "m");
  ASSERT_EQ(3u, tensors.size());
  EXPECT_EQ("first", tensors[0].name);
  EXPECT_EQ("scalar", tensors[1].name);
  EXPECT_EQ(0, tensors[1].shape.rank());
  EXPECT_TRUE(tensors[2].bytes.empty());
  EXPECT_TRUE(parse_safetensors(bytes_of(file_of("{}")), "m").empty());
}

TEST(Safetensors, RefusesFilesThatAreTooShort) {
  EXPECT_EQ("m.safetensors: is no safetensors file: it has 0 bytes, fewer than its header's length takes",
            refusal(""));
  EXPECT_NE(std::string::npos, refusal("1234567").find("fewer than"));
  EXPECT_EQ("m.safetensors: is cut: the header should have 100 bytes, but only 2 are left in the file",
            refusal(little_endian(100) + "{}"));
}

TEST(Safetensors, RefusesHeadersThatAreBombs) {
  EXPECT_EQ("m.safetensors: is no safetensors file: a header has at most 100000000 bytes, found 100000001",
            refusal(little_endian(100'000'001) + "{}"));
  EXPECT_NE(std::string::npos, refusal(little_endian(UINT64_MAX) + "{}").find("at most 100000000"));
  EXPECT_NE(
      std::string::npos,
      refusal_of("{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}").find("m.safetensors"));
}

TEST(Safetensors, RefusesHeadersThatAreNoJsonObject) {
  EXPECT_NE(std::string::npos, refusal_of("").find("does not begin with a brace"));
  EXPECT_NE(std::string::npos, refusal_of("[]").find("does not begin with a brace"));
  EXPECT_NE(std::string::npos, refusal_of(" {}").find("does not begin with a brace"));
  EXPECT_NE(std::string::npos, refusal_of("{").find("not valid JSON"));
  EXPECT_NE(std::string::npos, refusal_of("{} x").find("not valid JSON"));
  EXPECT_NE(std::string::npos, refusal_of("{\"\xff\":{}}").find("not valid JSON"));
}

TEST(Safetensors, RefusesNamesThatAreThereTwice) {
  EXPECT_EQ("m.safetensors: key 'a' is there twice",
            refusal_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                       2));
  EXPECT_EQ("m.safetensors: key 'dtype' is there twice",
            refusal_of(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1));
}

TEST(Safetensors, RefusesEntriesThatLackSomethingOrHaveAnotherKind) {
  EXPECT_EQ("m.safetensors: tensor 'a': has no dtype",
            refusal_of(R"({"a":{"shape":[],"data_offsets":[0,1]}})", 1));
  EXPECT_EQ("m.safetensors: tensor 'a': has no shape",
            refusal_of(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1));
  EXPECT_EQ("m.safetensors: tensor 'a': has no data_offsets",
            refusal_of(R"({"a":{"dtype":"U8","shape":[]}})"));
  EXPECT_NE(std::string::npos, refusal_of(R"({"a":3})").find("expected an object"));
  EXPECT_NE(std::string::npos,
            refusal_of(R"({"a":{"dtype":8,"shape":[],"data_offsets":[0,1]}})", 1).find("no text"));
  for (const char* shape : {"[-1]", "[1.0]", "[\"1\"]", "[18446744073709551615]", "[1e3]"}) {
    EXPECT_NE(std::string::npos,
              refusal_of(fmt::format(R"({{"a":{{"dtype":"U8","shape":{},"data_offsets":[0,1]}}}})", shape), 1)
                  .find("whole numbers from 0 on"))
        << shape;
  }
  for (const char* place : {"[0]", "[0,1,2]", "[0,-1]", "[0.0,1]", "{}", "[1,0]"}) {
    EXPECT_NE(std::string::npos,
              refusal_of(fmt::format(R"({{"a":{{"dtype":"U8","shape":[1],"data_offsets":{}}}}})", place), 1)
                  .find("data_offsets"))
        << place;
  }
}

TEST(Safetensors, RefusesUnknownTypes) {
  EXPECT_EQ("m.safetensors: tensor 'a': unknown dtype 'F31'",
            refusal_of(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4));
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  EXPECT_EQ("m.safetensors: tensor 'a': the product of its shape overflows",
            refusal_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"));
  EXPECT_EQ("m.safetensors: tensor 'a': its size in bits overflows",
            refusal_of(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})"));
  EXPECT_EQ("m.safetensors: tensor 'a': does not end at a whole byte",
            refusal_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1));
}

TEST(Safetensors, RefusesSizesThatDoNotFitTheShape) {
  EXPECT_EQ("m.safetensors: tensor 'a': F32 of [2,2] has 16 bytes, but data_offsets give it 12",
            refusal_of(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,12]}})", 12));
}

TEST(Safetensors, RefusesPlacesOutsideTheFile) {
  EXPECT_EQ("m.safetensors: tensor 'a': data_offsets [0, 4] end after the file's 3 bytes of data",
            refusal_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3));
}

TEST(Safetensors, RefusesOverlaps) {
  EXPECT_EQ("m.safetensors: tensor 'b': begins at byte 2, inside another that ends at 4",
            refusal_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                       6));
  EXPECT_NE(std::string::npos, refusal_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                          R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                                          2)
                                   .find("inside another"));
}

TEST(Safetensors, RefusesHoles) {
  EXPECT_EQ("m.safetensors: tensor 'a': begins at byte 1, after a hole from 0 on",
            refusal_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2));
  EXPECT_NE(std::string::npos, refusal_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                          R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                                          3)
                                   .find("after a hole from 1 on"));
}

TEST(Safetensors, RefusesBytesThatBelongToNoTensor) {
  EXPECT_EQ("m.safetensors: its tensors end at byte 1 of 3 after the header: the file is cut or has more",
            refusal_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 3));
  EXPECT_NE(std::string::npos, refusal_of("{}", 1).find("end at byte 0 of 1"));
}

TEST(Safetensors, MetadataIsTextToText) {
  EXPECT_EQ("m.safetensors: __metadata__ takes text only, but 'n' is number",
            refusal_of(R"({"__metadata__":{"n":1}})"));
  EXPECT_EQ("m.safetensors: __metadata__ is no object", refusal_of(R"({"__metadata__":"pt"})"));
}

TEST(Safetensors, AMappedFileNamesItself) {
  const TemporaryDirectory directory;
  const auto path = directory.write("cut.safetensors", file_of("{}").substr(0, 9));
  const std::string message = message_of<DataError>([&] { SafetensorsFile file(path); });
  EXPECT_TRUE(message.starts_with(path.string() + ": is cut")) << message;
}

}  // namespace
}  // namespace tandem::hub
