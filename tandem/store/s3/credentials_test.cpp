#include "tandem/store/s3/credentials.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/store/s3/answers.h"
#include "tandem/store/s3/fake_server_test.h"

namespace tandem::s3 {
namespace {

class CredentialsTest : public testing::Test {
 protected:
  Environment environment() {
    return {[this](const std::string& name) { return variables[name]; },
            [this](const std::string& path) -> std::optional<std::string> {
              if (!files.contains(path)) return std::nullopt;
              return files[path];
            },
            [this] { return now; }};
  }
  static std::string role_page(const std::string& id, const std::string& ends) {
    return fmt::format(R"({{"AccessKeyId": "{}", "SecretAccessKey": "s", "Token": "t", "Expiration": "{}"}})",
                       id, ends);
  }
  std::string id() { return Credentials(environment(), "r").keys().id; }

  FakeServer server;
  std::map<std::string, std::string> variables = {{"HOME", "/home/me"},
                                                  {"AWS_EC2_METADATA_DISABLED", "true"}};
  std::map<std::string, std::string> files;
  int64_t now = *parse_time("2026-01-01T00:00:00Z");
};

TEST_F(CredentialsTest, ComeFromTheFirstPlaceThatHasThem) {
  EXPECT_TRUE(
      message_of<IoError>([&] { id(); }).starts_with("S3: no credentials found: set AWS_ACCESS_KEY_ID"));
  files["/home/me/.aws/credentials"] =
      "[default]\naws_access_key_id = of-default ; "
      "c\naws_secret_access_key=x\n[other]\naws_access_key_id=of-other\n"
      "aws_secret_access_key=y\n";
  EXPECT_EQ(id(), "of-default");
  variables["AWS_PROFILE"] = "other";
  EXPECT_EQ(id(), "of-other");
  variables["AWS_ACCESS_KEY_ID"] = "of-variables";
  variables["AWS_SECRET_ACCESS_KEY"] = "z";
  EXPECT_EQ(id(), "of-variables");
  variables.erase("AWS_SECRET_ACCESS_KEY");
  EXPECT_TRUE(message_of<ConfigError>([&] { id(); }).starts_with("AWS_SECRET_ACCESS_KEY: is not set"));
  variables.erase("AWS_ACCESS_KEY_ID");
  variables["AWS_PROFILE"] = "absent";
  EXPECT_TRUE(message_of<ConfigError>([&] { id(); }).starts_with("AWS_PROFILE: no profile 'absent'"));
}

TEST_F(CredentialsTest, OfAContainerAreFetchedAnewBeforeTheyEnd) {
  variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = server.url() + "/role";
  variables["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = "/token";
  files["/token"] = "let me\n";
  server.set_page("GET /role", role_page("one", "2026-01-01T01:00:00Z"));
  Credentials credentials(environment(), "r");
  EXPECT_EQ(credentials.keys().id, "one");
  EXPECT_EQ(server.seen().back().headers.at("authorization"), "let me");
  server.set_page("GET /role", role_page("two", "2026-01-01T02:00:00Z"));
  now += 3000;
  EXPECT_EQ(credentials.keys().id, "one");
  now += 400;  // less than five minutes are left
  EXPECT_EQ(credentials.keys().id, "two");
  server.set_trouble([](int, const SeenRequest&) { return Trouble::Internal; });
  now += 3400;  // nobody to ask, but they are still good
  EXPECT_EQ(credentials.keys().id, "two");
  now += 1000;
  EXPECT_TRUE(
      message_of<IoError>([&] { credentials.keys(); }).starts_with("S3: the container's role gives no keys"));
}

TEST_F(CredentialsTest, OfAContainerAreNotAskedOfStrangers) {
  variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://example.com/role";
  EXPECT_THROW(id(), ConfigError);
}

TEST_F(CredentialsTest, OfTheMachineAreAskedForWithAToken) {
  variables.erase("AWS_EC2_METADATA_DISABLED");
  variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = server.url();
  server.set_page("PUT /latest/api/token", "token!");
  server.set_page("GET /latest/meta-data/iam/security-credentials/", "my-role");
  server.set_page("GET /latest/meta-data/iam/security-credentials/my-role",
                  role_page("of-machine", "2026-01-01T06:00:00Z"));
  EXPECT_EQ(id(), "of-machine");
  EXPECT_EQ(server.seen().back().headers.at("x-aws-ec2-metadata-token"), "token!");
}

TEST_F(CredentialsTest, OfAWebIdentityAreLentBySts) {
  variables["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/token";
  variables["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/r";
  variables["AWS_ENDPOINT_URL_STS"] = server.url() + "/sts";
  files["/token"] = "jwt";
  server.set_page("POST /sts",
                  "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
                  "<AccessKeyId>of-web</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t"
                  "</SessionToken><Expiration>2026-01-01T06:00:00Z</Expiration></Credentials>"
                  "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>");
  EXPECT_EQ(id(), "of-web");
  EXPECT_NE(server.seen().back().body.find("WebIdentityToken=jwt"), std::string::npos);
  EXPECT_THROW(parse_web_identity("<a/>"), DataError);
  EXPECT_THROW(parse_role_keys("{}", "x"), DataError);
}

}  // namespace
}  // namespace tandem::s3
