// What an S3Store makes of an address and of the environment. What every store promises is asked of it by
// ../store_test.cpp.
#include "tandem/store/s3/s3_store.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/store/s3/fake_server_test.h"

namespace tandem::s3 {
namespace {

Environment with(std::map<std::string, std::string> variables,
                 std::map<std::string, std::string> files = {}) {
  return {[variables](const std::string& name) {
            const auto found = variables.find(name);
            return found != variables.end() ? found->second : std::string();
          },
          [files](const std::string& path) -> std::optional<std::string> {
            const auto found = files.find(path);
            if (found == files.end()) return std::nullopt;
            return found->second;
          },
          [] { return int64_t{0}; }};
}

std::string url_of(const std::string& address, const StorageOptions& options,
                   const Environment& environment) {
  const Place place = find_place(address, options, environment);
  return place.request_for(place.key("a b")).url();
}

TEST(S3Place, ComesFromTheConfigTheEnvironmentAndTheProfile) {
  EXPECT_EQ(url_of("s3://bucket/p/q/", {}, with({})), "https://bucket.s3.us-east-1.amazonaws.com/p/q/a%20b");
  EXPECT_EQ(url_of("s3://my.bucket", {}, with({{"AWS_DEFAULT_REGION", "eu-west-1"}})),
            "https://s3.eu-west-1.amazonaws.com/my.bucket/a%20b");
  EXPECT_EQ(url_of("s3://bucket", {}, with({{"AWS_ENDPOINT_URL", "http://h:9000/x/"}})),
            "http://h:9000/x/bucket/a%20b");
  EXPECT_EQ(
      url_of("s3://bucket", {"http://o:1", "r", false, {}, 0}, with({{"AWS_ENDPOINT_URL", "http://h:9000"}})),
      "http://bucket.o:1/a%20b");
  const Place place =
      find_place("s3://b", {},
                 with({{"HOME", "/h"}, {"AWS_PROFILE", "x"}},
                      {{"/h/.aws/config", "[profile x]\nregion = moon-1\nendpoint_url = https://m\n"}}));
  EXPECT_EQ(place.region, "moon-1");
  EXPECT_EQ(place.host, "m");
}

TEST(S3Place, RefusesAddressesThatAreNone) {
  for (const char* address : {"s3://", "s3:///a", "s3://b?x/a", "s3://b//a", "bucket"})
    EXPECT_TRUE(message_of<ConfigError>([&] { find_place(address, {}, with({})); }).starts_with(address));
  for (const char* endpoint : {"h:9000", "ftp://h", "http://", "http://user:pass@h"})
    EXPECT_TRUE(message_of<ConfigError>([&] {
                  find_place("s3://b", {endpoint, "", {}, {}, 0}, with({}));
                }).starts_with("storage.endpoint: expected a URL"));
}

TEST(S3Store, IsOneBehindEveryAddressOfThatKind) {
  EXPECT_TRUE(is_remote("s3://bucket/x"));
  EXPECT_FALSE(is_remote("runs/x"));
}

TEST(S3Store, ListsManyPagesInOrder) {
  FakeServer server;
  const auto store = server.store("s3://bucket");
  std::vector<std::string> names;
  for (int i = 0; i < 10; ++i) names.push_back(fmt::format("x/{:02} &<{}>", i, i));
  for (const std::string& name : names) store->put(name, name);
  const auto listed = store->list("x/");
  ASSERT_EQ(listed.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(listed[i].name, names[i]);
    EXPECT_EQ(listed[i].bytes, static_cast<int64_t>(names[i].size()));
  }
}

TEST(S3Store, MemoryOfAWriterIsWhatItsObjectNeedsAndNoMoreThanNinePartsUpToALot) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(upload_memory(0), 5 * kMiB);
  EXPECT_EQ(upload_memory(7 * kMiB + 1), 8 * kMiB);
  EXPECT_EQ(upload_memory(8 * kMiB), 8 * kMiB);
  EXPECT_EQ(upload_memory(9 * kMiB), 72 * kMiB);
  EXPECT_EQ(upload_memory(79'000 * kMiB), 72 * kMiB);
  const int64_t much = upload_memory(1'000'000 * kMiB);
  EXPECT_GE(much / (kUploadStreams + 1) * kMostParts, 1'000'000 * kMiB);
}

TEST(S3Store, GivesRoomForWhatIsWrittenNext) {
  FakeServer server;
  const auto store = server.store("s3://bucket", 100);
  const auto writer = store->create("x");
  std::string content;
  for (int i = 0; i < 50; ++i) {
    const std::span<std::byte> room = writer->room(static_cast<size_t>(7 + i));
    ASSERT_FALSE(room.empty());
    ASSERT_LE(room.size(), static_cast<size_t>(7 + i));
    const std::string text(room.size(), static_cast<char>('a' + i % 26));
    std::memcpy(room.data(), text.data(), text.size());
    writer->add(room.size());
    content += text;
    if (i % 3 == 0) {  // the two may be mixed
      writer->write_all(std::as_bytes(std::span(text)));
      content += text;
    }
  }
  writer->finish();
  EXPECT_EQ(read_text(*store->open("x")), content);
}

TEST(S3Store, WritesIntoMemoryThatIsLent) {
  FakeServer server;
  const auto store = server.store("s3://bucket");
  std::vector<std::byte> memory(1000);
  store->lend_memory(memory);
  std::string content;
  for (int i = 0; i < 5500; ++i) content += static_cast<char>('a' + i % 23);
  const auto writer = store->create("object");
  writer->write_all(std::as_bytes(std::span(content)));
  writer->finish();
  EXPECT_EQ(read_text(*store->open("object")), content);
}

TEST(S3Store, AnAddressHasAPlaceAndAName) {
  EXPECT_EQ(split_address("s3://b/p/step-1"), (std::pair<std::string, std::string>("s3://b/p", "step-1")));
  EXPECT_EQ(split_address("s3://b/p/"), (std::pair<std::string, std::string>("s3://b", "p")));
  EXPECT_THROW(split_address("s3://b"), DataError);
}

}  // namespace
}  // namespace tandem::s3
