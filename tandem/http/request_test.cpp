#include "tandem/http/request.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/http/address.h"

namespace tandem::http {
namespace {

int status_of(std::string_view head) {
  const auto parsed = parse_request(head);
  const auto* refusal = std::get_if<Refusal>(&parsed);
  return refusal != nullptr ? refusal->status : 200;
}

TEST(Request, HasItsPathQueryAndHeaders) {
  const auto parsed = parse_request(
      "GET /api/run%20s?id=a%2Fb+c&empty=&bare&id=last HTTP/1.1\r\nHost: localhost:80\r\nX-Odd:  spaced "
      "\r\nx-odd: "
      "second");
  ASSERT_TRUE(std::holds_alternative<Request>(parsed));
  const auto& request = std::get<Request>(parsed);
  EXPECT_EQ(request.path, "/api/run s");
  EXPECT_EQ(request.param("id"), "last");
  EXPECT_EQ(request.param("empty"), "");
  EXPECT_EQ(request.header("x-odd"), "spaced");
  EXPECT_TRUE(request.keep_alive);
}

TEST(Request, WhatCouldLeaveTheTreeOrSplitAHeaderIsRefused) {
  const std::string host = "\r\nHost: a";
  for (const std::string target : {"/../etc/passwd", "/a/%2e%2e/b", "/a/..", "/./a", "etc", "http://a/", "/%",
                                   "/%0", "/%zz", "/a%00b", "/?a=%00"}) {
    EXPECT_EQ(status_of("GET " + target + " HTTP/1.1" + host), 400) << target;
  }
  EXPECT_EQ(status_of("GET /a..b/...c HTTP/1.1" + host), 200);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\nb: c"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost : a"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n folded: a" + host), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nHost: b"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1"), 400);
}

TEST(Request, OnlyGetsWithoutABodyAreTaken) {
  const std::string host = "\r\nHost: a";
  EXPECT_EQ(status_of("POST / HTTP/1.1" + host), 405);
  EXPECT_EQ(status_of("HEAD / HTTP/1.1" + host), 200);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: 3" + host), 413);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nTransfer-Encoding: chunked" + host), 413);
  EXPECT_EQ(status_of("GET / HTTP/2.0" + host), 505);
  EXPECT_EQ(status_of("GET /"), 400);
  EXPECT_EQ(status_of(""), 400);
  EXPECT_EQ(status_of(std::string("\x16\x03\x01\x02\0\x01", 6)), 400);  // TLS
}

TEST(Address, IsAHostAndAPort) {
  EXPECT_EQ(parse_address("127.0.0.1:9090", "x").text(), "127.0.0.1:9090");
  EXPECT_EQ(parse_address("[::1]:0", "x").host, "::1");
  EXPECT_EQ(parse_address(":9090", "x").host, "");
  for (const char* bad :
       {"", "9090", "a:", "a:b", "a:-1", "a:65536", "::1:80", "a b:80", "http://a:80", "a:80x"}) {
    const std::string message = message_of<ConfigError>([&] { parse_address(bad, "log.prometheus"); });
    EXPECT_TRUE(message.starts_with("log.prometheus: expected HOST:PORT")) << bad << ": " << message;
  }
}

}  // namespace
}  // namespace tandem::http
