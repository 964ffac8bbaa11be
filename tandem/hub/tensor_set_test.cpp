#include "tandem/hub/tensor_set.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/hub/safetensors_test.h"

namespace tandem::hub {
namespace {

std::string one(const std::string& name) {
  return file_of(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}})", name), "x");
}

class TensorSetTest : public testing::Test {
 protected:
  void index(const std::string& map) const {
    directory_.write("model.safetensors.index.json", "{\"weight_map\":" + map + "}");
  }
  std::string refusal() const {
    const std::string message = message_of<DataError>([&] { TensorSet set(directory_.path()); });
    return message.starts_with(directory_.path().string() + "/")
               ? message.substr(directory_.path().string().size() + 1)
               : message;
  }
  const TemporaryDirectory directory_;
};

TEST_F(TensorSetTest, ReadsShardsByTheirIndex) {
  directory_.write("1.safetensors", one("a"));
  directory_.write("2.safetensors", one("b"));
  index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  const TensorSet set(directory_.path());
  ASSERT_NE(nullptr, set.find("b"));
  EXPECT_EQ("2.safetensors", set.file_of(*set.find("b")).filename());
  EXPECT_EQ(nullptr, set.find("c"));
  EXPECT_EQ(2, set.total_bytes());
}

TEST_F(TensorSetTest, AFileByItselfIsASetToo) {
  const TensorSet set(directory_.write("x.safetensors", one("a")));
  EXPECT_NE(nullptr, set.find("a"));
}

TEST_F(TensorSetTest, NamesShardsThatAreMissing) {
  index(R"({"a":"1.safetensors"})");
  EXPECT_EQ("model.safetensors.index.json: names 1.safetensors, which is not there", refusal());
}

TEST_F(TensorSetTest, NamesTensorsThatAreElsewhereThanTheIndexSays) {
  directory_.write("1.safetensors", one("a"));
  directory_.write("2.safetensors", one("b"));
  index(R"({"a":"2.safetensors","b":"1.safetensors"})");
  EXPECT_EQ("1.safetensors: holds tensor 'a', which model.safetensors.index.json says is in 2.safetensors",
            refusal());
}

TEST_F(TensorSetTest, NamesTensorsThatTheIndexDoesNotKnow) {
  directory_.write("1.safetensors", one("a"));
  index(R"({"b":"1.safetensors"})");
  EXPECT_EQ("1.safetensors: holds tensor 'a', which model.safetensors.index.json does not name", refusal());
}

TEST_F(TensorSetTest, NamesTensorsThatAreMissingInTheirShard) {
  directory_.write("1.safetensors", one("a"));
  index(R"({"a":"1.safetensors","b":"1.safetensors"})");
  EXPECT_EQ("1.safetensors: has no tensor 'b', which model.safetensors.index.json says is there", refusal());
}

TEST_F(TensorSetTest, AnIndexNamesFilesBesideItOnly) {
  for (const char* name : {"../1.safetensors", "/etc/passwd", "", ".."}) {
    index(fmt::format(R"({{"a":"{}"}})", name));
    EXPECT_NE(std::string::npos, refusal().find("which is no file beside it")) << name;
  }
}

TEST_F(TensorSetTest, RefusesWhatIsNoIndex) {
  index("[]");
  EXPECT_EQ("model.safetensors.index.json: expected weight_map, an object of tensors and their files",
            refusal());
  index(R"({"a":1})");
  EXPECT_EQ("model.safetensors.index.json: weight_map has no file's name for tensor 'a'", refusal());
}

TEST_F(TensorSetTest, SaysWhatADirectoryWithoutWeightsHolds) {
  EXPECT_NE(std::string::npos, refusal().find("holds no weights: expected model.safetensors"));
  directory_.write("pytorch_model.bin", "x");
  EXPECT_NE(std::string::npos, refusal().find("pytorch_model.bin holds Python objects"));
}

}  // namespace
}  // namespace tandem::hub
