#include "tandem/store/s3/sign.h"

#include <gtest/gtest.h>

#include "tandem/store/s3/crc32c.h"

namespace tandem::s3 {
namespace {

// The examples of Amazon's documentation of signatures for S3.
const KeyPair kKeys{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
constexpr std::time_t kTime = 1369353600;  // 2013-05-24T00:00:00Z

std::string signature_of(Request& request) {
  sign(request, kKeys, {"us-east-1", "s3"}, kTime);
  const std::string authorization = request.headers["authorization"];
  return authorization.substr(authorization.rfind('=') + 1);
}

TEST(Sign, AgreesWithThePublishedExamples) {
  Request list;
  list.host = "examplebucket.s3.amazonaws.com";
  list.query = {{"prefix", "J"}, {"max-keys", "2"}};
  EXPECT_EQ(signature_of(list), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");

  Request lifecycle;
  lifecycle.host = "examplebucket.s3.amazonaws.com";
  lifecycle.query = {{"lifecycle", ""}};
  EXPECT_EQ(signature_of(lifecycle), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(Sign, SendsTheSessionOfLentKeysAndNeverTheSecret) {
  Request request;
  request.host = "h";
  sign(request, {"id", "the-secret", "the-session"}, {"r", "s3"}, kTime);
  EXPECT_EQ(request.headers["x-amz-security-token"], "the-session");
  EXPECT_NE(request.headers["authorization"].find("x-amz-security-token"), std::string::npos);
  for (const auto& [name, value] : request.headers)
    EXPECT_EQ(value.find("the-secret"), std::string::npos) << name;
}

TEST(Sign, HashesShortBodiesAndLeavesLongOnesToTheirChecksum) {
  const std::string text = "abc";
  const std::vector<std::byte> large(kMostSignedBody + 1);
  Request request;
  request.body = std::as_bytes(std::span(text));
  sign(request, kKeys, {"r", "s3"}, kTime);
  EXPECT_EQ(request.headers["x-amz-content-sha256"],
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  request.body = large;
  sign(request, kKeys, {"r", "s3"}, kTime);
  EXPECT_EQ(request.headers["x-amz-content-sha256"], "UNSIGNED-PAYLOAD");
}

TEST(Request, EncodesWhatIsNotPlain) {
  EXPECT_EQ(url_encoded("a b/c~%+\xc3\xa9"), "a%20b%2Fc~%25%2B%C3%A9");
  EXPECT_EQ(url_encoded("a b/c", true), "a%20b/c");
  EXPECT_EQ(query_text({{"b", "1 2"}, {"a", ""}}), "a=&b=1%202");
}

TEST(Crc32c, IsTheOneThatS3Means) {
  const std::string check = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(check))), 0xe3069283u);
  EXPECT_EQ(crc32c_base64({}), "AAAAAA==");
  EXPECT_EQ(crc32c_base64(std::as_bytes(std::span(check))), "4waSgw==");
  std::vector<std::byte> bytes;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(crc32c(bytes), crc32c_by_table(bytes)) << i;
    bytes.push_back(static_cast<std::byte>(i * 37));
  }
  for (size_t i = 0; i < 50'000; ++i) bytes.push_back(static_cast<std::byte>(i * i >> 5));
  for (size_t size = bytes.size(); size > 0; size -= std::min(size, size_t{1021})) {  // where lanes end
    const auto part = std::span<const std::byte>(bytes).last(size);
    EXPECT_EQ(crc32c(part), crc32c_by_table(part)) << size;
    EXPECT_EQ(crc32c(part.subspan(size / 3), crc32c(part.first(size / 3))), crc32c(part)) << size;
  }
}

}  // namespace
}  // namespace tandem::s3
