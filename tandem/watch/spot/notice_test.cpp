#include "tandem/watch/spot/notice.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem::spot {
namespace {

constexpr double kNow = 1000;

TEST(ParseTime, ReadsBothForms) {
  EXPECT_EQ(parse_time("1970-01-02T00:00:10Z"), 86410);
  EXPECT_EQ(parse_time("Fri, 02 Jan 1970 00:00:10 GMT"), 86410);
  for (const char* text : {"", "soon", "1970-01-02T00:00:10", "1970-01-02T00:00:10Z and more"})
    EXPECT_FALSE(parse_time(text)) << text;
}

TEST(Aws, SaysWhatAndWhen) {
  const auto notice = parse_aws_action(R"({"action": "terminate", "time": "2020-04-24T17:11:44Z"})");
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->text, "AWS: terminate at 2020-04-24T17:11:44Z");
  EXPECT_EQ(notice->at_s, parse_time("2020-04-24T17:11:44Z"));
  EXPECT_FALSE(parse_aws_action(R"({"action": "stop"})")->at_s);
}

TEST(Aws, RefusesOtherAnswers) {
  for (const char* body : {"", "<html>", "[]", "{}", R"({"action": 5})", R"("terminate")"})
    EXPECT_THROW(parse_aws_action(body), DataError) << body;
}

TEST(Google, IsTrueOrFalse) {
  EXPECT_FALSE(parse_gcp_preempted("FALSE\n", kNow));
  const auto notice = parse_gcp_preempted("TRUE", kNow);
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->at_s, kNow + 30);
  for (const char* body : {"", "true", "TRUE FALSE"})
    EXPECT_THROW(parse_gcp_preempted(body, kNow), DataError) << body;
}

TEST(Azure, TakesTheSoonestEventOfThisMachine) {
  const char* body = R"({"DocumentIncarnation": 3, "Events": [
    {"EventType": "Freeze", "Resources": ["vm_0"], "NotBefore": "Fri, 02 Jan 1970 00:00:01 GMT"},
    {"EventType": "Preempt", "Resources": ["vm_1"], "NotBefore": "Fri, 02 Jan 1970 00:00:02 GMT"},
    {"EventType": "Terminate", "Resources": ["vm_0"], "NotBefore": "Fri, 02 Jan 1970 00:00:20 GMT"},
    {"EventType": "Preempt", "Resources": ["vm_0", "vm_1"], "NotBefore": "Fri, 02 Jan 1970 00:00:10 GMT"}]})";
  const auto notice = parse_azure_events(body, "vm_0", kNow);
  ASSERT_TRUE(notice);
  EXPECT_EQ(notice->at_s, 86410);
  EXPECT_EQ(notice->text, "Azure: Preempt not before Fri, 02 Jan 1970 00:00:10 GMT");
  EXPECT_FALSE(parse_azure_events(body, "vm_2", kNow));
}

TEST(Azure, AnEventThatHasStartedHasNoTime) {
  const char* body =
      R"({"Events": [{"EventType": "Preempt", "EventStatus": "Started", "Resources": ["a"], "NotBefore": ""}]})";
  EXPECT_EQ(parse_azure_events(body, "a", kNow)->at_s, kNow + 30);
  EXPECT_FALSE(parse_azure_events(R"({"Events": []})", "a", kNow));
  for (const char* wrong : {"", "{}", R"({"Events": 5})", "[1]"})
    EXPECT_THROW(parse_azure_events(wrong, "a", kNow), DataError) << wrong;
}

TEST(File, MayHoldSeconds) {
  EXPECT_EQ(parse_file("f", "90\n", kNow).at_s, kNow + 90);
  EXPECT_FALSE(parse_file("f", "", kNow).at_s);
  EXPECT_FALSE(parse_file("f", "soon", kNow).at_s);
}

}  // namespace
}  // namespace tandem::spot
