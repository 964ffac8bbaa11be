#include "tandem/http/url.h"

#include <gtest/gtest.h>

namespace tandem::http {
namespace {

TEST(Url, IsShownWithoutWhatMayBeASecret) {
  EXPECT_EQ(host_of("https://user:word@example.org:8080/secret?token=1"), "https://example.org:8080");
  EXPECT_EQ(host_of("http://example.org"), "http://example.org");
  EXPECT_EQ(host_of("http://example.org/a@b"), "http://example.org");
}

TEST(Url, ASegmentHasNoCharacterThatMeansSomething) {
  EXPECT_EQ(percent_encoded("a-b._~9"), "a-b._~9");
  EXPECT_EQ(percent_encoded("a/b c?\xc3\xa4"), "a%2Fb%20c%3F%C3%A4");
}

}  // namespace
}  // namespace tandem::http
