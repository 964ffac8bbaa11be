// Trouble on the way to a store and in it: each call is mended, or ends in one line that tells no secret.
#include "tandem/store/s3/client.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/store/s3/fake_server_test.h"

namespace tandem::s3 {
namespace {

std::string text(const Store& store, const std::string& name) { return read_text(*store.open(name)); }

constexpr Trouble kPassing[] = {Trouble::Internal, Trouble::SlowDown, Trouble::CutBefore,  Trouble::CutAfter,
                                Trouble::CutHalf,  Trouble::Late,     Trouble::ErrorInGood};

class TroubledServer : public testing::TestWithParam<Trouble> {
 protected:
  // Every second request has the trouble, whichever it is. Waiting takes long: of those every eighth.
  void trouble_often() {
    const int every = GetParam() == Trouble::Late ? 8 : 2;
    server.set_trouble(
        [every](int number, const SeenRequest&) { return number % every == 0 ? GetParam() : Trouble::None; });
  }
  FakeServer server;
  const std::shared_ptr<S3Store> store = server.store("s3://bucket/p", 1000);
};

TEST_P(TroubledServer, IsAskedAgainUntilItIsDone) {
  trouble_often();
  store->put("one", "first");
  EXPECT_EQ(text(*store, "one"), "first");
  for (const char* name : {"two", "three", "four", "five"}) store->put(name, name);
  EXPECT_EQ(store->list("").size(), 5u);
  store->remove("one");
  EXPECT_FALSE(store->exists("one"));
}

TEST_P(TroubledServer, GetsAnObjectInPartsOnceAndWhole) {
  std::string content;
  for (int i = 0; i < 5500; ++i) content += static_cast<char>('a' + i % 23);
  trouble_often();
  const auto writer = store->create("object");
  writer->write_all(std::as_bytes(std::span(content)));
  writer->finish();
  EXPECT_EQ(text(*store, "object"), content);
  EXPECT_EQ(server.objects().size(), 1u);
}

TEST_P(TroubledServer, LetsOneWriterAloneThinkThatItWasFirst) {
  trouble_often();
  EXPECT_TRUE(store->put_new("claim", "mine"));
  EXPECT_FALSE(store->put_new("claim", "another's"));
  EXPECT_EQ(text(*store, "claim"), "mine");
}

INSTANTIATE_TEST_SUITE_P(, TroubledServer, testing::ValuesIn(kPassing),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

class S3Client : public testing::Test {
 protected:
  FakeServer server;
  const std::shared_ptr<S3Store> store = server.store("s3://bucket/p", 1000);
};

TEST_F(S3Client, GivesUpWithOneLineThatTellsWhatAndWhy) {
  store->put("a", "text");
  server.set_trouble([](int, const SeenRequest&) { return Trouble::SlowDown; });
  const std::string message = message_of<IoError>([&] { store->put("a", "other"); });
  EXPECT_EQ(message, "s3://bucket/p/a: cannot put: status 503, SlowDown: for a test (tried 6 times)");
  EXPECT_EQ(server.num_requests(), 6);
}

TEST_F(S3Client, DoesNotAskAgainWhatWillNotChange) {
  store->put("a", "text");
  const auto object = store->open("a");
  store->put("a", "other");
  server.set_trouble({});
  std::string bytes(4, ' ');
  EXPECT_EQ(message_of<IoError>([&] { object->read_at(0, std::as_writable_bytes(std::span(bytes))); }),
            "s3://bucket/p/a: was replaced while it was read");
  EXPECT_EQ(server.num_requests(), 1);
}

TEST_F(S3Client, BelievesNoAnswerOfAnotherLength) {
  store->put("a", "0123456789");
  const auto object = store->open("a");
  server.set_trouble([](int, const SeenRequest&) { return Trouble::ShortLength; });
  std::string bytes(10, ' ');
  const std::string message =
      message_of<IoError>([&] { object->read_at(0, std::as_writable_bytes(std::span(bytes))); });
  EXPECT_NE(message.find("the answer has 5 bytes instead of 10"), std::string::npos) << message;
}

TEST_F(S3Client, BelievesNoListThatIsNone) {
  server.set_trouble([](int, const SeenRequest&) { return Trouble::BadXml; });
  const std::string message = message_of<IoError>([&] { store->list(""); });
  EXPECT_TRUE(message.starts_with("s3://bucket/p: cannot list: not XML of S3: ")) << message;
}

TEST_F(S3Client, TellsNoSecretWhateverGoesWrong) {
  for (const Trouble trouble : {Trouble::Internal, Trouble::Expired, Trouble::CutBefore, Trouble::BadXml}) {
    server.set_trouble([=](int, const SeenRequest&) { return trouble; });
    const std::string message = message_of<IoError>([&] { store->list("x"); });
    for (const char* secret : {"secret-of-the-test", "AKIDEXAMPLE", "Signature"})
      EXPECT_EQ(message.find(secret), std::string::npos) << message;
  }
}

TEST_F(S3Client, AWriterThatGivesUpTakesBackItsParts) {
  {
    const auto writer = store->create("object");
    const std::string content(5500, 'x');
    writer->write_all(std::as_bytes(std::span(content)));
  }
  EXPECT_EQ(server.num_uploads(), 0u);
  EXPECT_TRUE(server.objects().empty());
}

TEST_F(S3Client, APartThatCannotBePutFailsTheObjectAndLeavesNothing) {
  server.set_trouble([](int, const SeenRequest& request) {
    return request.query.find("partNumber=3") != std::string::npos ? Trouble::Internal : Trouble::None;
  });
  const std::string content(5500, 'x');
  const std::string message = message_of<IoError>([&] {
    const auto writer = store->create("object");
    writer->write_all(std::as_bytes(std::span(content)));
    writer->finish();
  });
  EXPECT_TRUE(message.starts_with("s3://bucket/p/object: cannot put a part: status 500")) << message;
  EXPECT_TRUE(server.objects().empty());
  EXPECT_EQ(server.num_uploads(), 0u);
}

TEST_F(S3Client, WhatAKilledWriterLeftIsSeenAndGoes) {
  Client client(find_place("s3://bucket/p", {}, server.environment()), server.environment());
  client.call({"begin", "POST", "half", {{"uploads", ""}}});
  ASSERT_EQ(store->unfinished().size(), 1u);
  EXPECT_TRUE(store->unfinished()[0].name.starts_with("half?uploadId="));
  EXPECT_TRUE(store->remove_leftovers(any_bundle).empty());
  EXPECT_EQ(server.num_uploads(), 0u);
}

TEST_F(S3Client, SendsAChecksumWithEachPutUnlessToldNotTo) {
  store->put("a", "123456789");
  EXPECT_EQ(server.seen().back().headers.at("x-amz-checksum-crc32c"), "4waSgw==");
  Environment quiet = server.environment();
  quiet.variable = [before = quiet.variable](const std::string& name) {
    return name == "AWS_REQUEST_CHECKSUM_CALCULATION" ? std::string("when_required") : before(name);
  };
  S3Store("s3://bucket", {}, quiet).put("a", "x");
  EXPECT_FALSE(server.seen().back().headers.contains("x-amz-checksum-crc32c"));
}

TEST_F(S3Client, FetchesLentKeysAnewWhenTheyAreRefused) {
  Environment lent = server.environment();
  lent.variable = [url = server.url()](const std::string& name) -> std::string {
    if (name == "AWS_ENDPOINT_URL") return url;
    if (name == "AWS_CONTAINER_CREDENTIALS_FULL_URI") return url + "/role";
    return {};
  };
  const auto page = [](const char* id) {
    return fmt::format(R"({{"AccessKeyId": "{}", "SecretAccessKey": "s", "Token": "t", "Expiration":
                            "2099-01-01T00:00:00Z"}})",
                       id);
  };
  server.set_page("GET /role", page("first"));
  S3Store lent_store("s3://bucket/p", {}, lent);
  lent_store.put("a", "1");
  const auto refuse = [](const std::string& id) {
    return [credential = "Credential=" + id](int, const SeenRequest& request) {
      const auto who = request.headers.find("authorization");
      return who != request.headers.end() && who->second.find(credential) != std::string::npos
                 ? Trouble::Expired
                 : Trouble::None;
    };
  };
  server.set_page("GET /role", page("second"));
  server.set_trouble(refuse("first"));
  lent_store.put("a", "2");
  EXPECT_EQ(text(lent_store, "a"), "2");
  server.set_page("GET /role", page("third"));
  server.set_trouble(refuse("second"));
  EXPECT_TRUE(lent_store.exists("a"));  // asked with HEAD, whose refusal does not say why
  server.set_trouble(refuse("third"));
  EXPECT_THROW(lent_store.exists("a"), IoError);  // new keys are tried once
}

}  // namespace
}  // namespace tandem::s3
