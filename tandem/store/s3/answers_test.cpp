#include "tandem/store/s3/answers.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/store/s3/xml.h"

namespace tandem::s3 {
namespace {

TEST(Xml, ReadsElementsTextEntitiesAndCdata) {
  const XmlElement root = parse_xml(
      "<?xml version='1.0'?>\n<!-- c --><a:Root xmlns=\"x\" b='1'>\n <One>1 &lt; 2 &#x41;&#8364;</One>"
      "<Two/> <Three><![CDATA[<&>]]></Three>\n</a:Root>\n");
  EXPECT_EQ(root.name, "Root");
  EXPECT_EQ(root.text, "");
  EXPECT_EQ(root.text_of("One"), "1 < 2 A\xe2\x82\xac");
  EXPECT_EQ(root.text_of("Three"), "<&>");
  EXPECT_NE(root.find("Two"), nullptr);
  EXPECT_EQ(root.find("Four"), nullptr);
  EXPECT_EQ(parse_xml("<a>" + xml_escaped("a<b>&\"c\"") + "</a>").text, "a<b>&\"c\"");
}

TEST(Xml, RefusesWhatIsNoneOrCouldBeEndless) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  std::string wide = "<a>";
  for (size_t i = 0; i < kMostXmlElements; ++i) wide += "<b/>";
  for (const std::string& text :
       {std::string(), std::string("text"), std::string("<a>"), std::string("<a></b>"),
        std::string("<a/><b/>"), std::string("<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>"),
        std::string("<a>&x;</a>"), std::string("<a>&#0;</a>"), std::string("<a>&#xd800;</a>"),
        std::string("<a b></a>"), std::string("<a:/>"), std::string("<a b='1></a>"),
        std::string("<a>\0</a>", 8), deep, wide + "</a>"}) {
    EXPECT_TRUE(message_of<DataError>([&] { parse_xml(text); }).starts_with("not XML of S3: "));
  }
}

TEST(Answers, OfListsAreBelievedOnlyWhole) {
  const ListPage page = parse_list(
      "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
      "<NextContinuationToken>t+/=</NextContinuationToken><Contents><Key>a%2Fb+c</Key>"
      "<LastModified>1970-01-02T00:00:01.500Z</LastModified><Size>12</Size></Contents></ListBucketResult>");
  ASSERT_EQ(page.objects.size(), 1u);
  EXPECT_EQ(page.objects[0].key, "a/b c");
  EXPECT_EQ(page.objects[0].bytes, 12);
  EXPECT_EQ(page.objects[0].modified, 86401);
  EXPECT_EQ(page.next, "t+/=");
  for (const char* body :
       {"<Other/>", "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        "<ListBucketResult><IsTruncated>yes</IsTruncated></ListBucketResult>",
        "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%4</Key><Size>1</Size></Contents>"
        "</ListBucketResult>"})
    EXPECT_THROW(parse_list(body), DataError) << body;
  EXPECT_THROW(parse_upload_id("<InitiateMultipartUploadResult/>"), DataError);
}

TEST(Answers, ErrorsAreOneShortLine) {
  const auto error = parse_error("<Error><Code>Slow\nDown</Code><Message>a\n\x1b[31mb</Message></Error>");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, "SlowDown");
  EXPECT_EQ(error->message, "a  [31mb");
  EXPECT_FALSE(parse_error("<html>busy</html>"));
  EXPECT_FALSE(parse_error("nothing"));
  EXPECT_EQ(parse_error("<Error><Message>" + std::string(5000, 'x') + "</Message></Error>")->message.size(),
            200u);
}

TEST(Answers, RangesLengthsAndTimesAreExact) {
  const auto range = parse_content_range("bytes 5-9/20");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 5);
  EXPECT_EQ(range->last, 9);
  EXPECT_EQ(range->total, 20);
  for (const char* wrong : {"", "bytes */20", "bytes 9-5/20", "bytes 0-20/20", "bytes -5-9/20", "bytes 5-9",
                            "5-9/20", "bytes 5-9/20x", "bytes 5/9-20"})
    EXPECT_FALSE(parse_content_range(wrong)) << wrong;
  EXPECT_EQ(parse_length("0"), 0);
  for (const char* wrong : {"", "-1", "+1", "1 ", "99999999999999999999"})
    EXPECT_FALSE(parse_length(wrong)) << wrong;
  EXPECT_EQ(parse_time("2026-11-18T05:07:20Z"), 1794978440);
  for (const char* wrong : {"", "yesterday", "2026-13-01T00:00:00Z", "2026-11-18 05:07:20"})
    EXPECT_FALSE(parse_time(wrong)) << wrong;
}

}  // namespace
}  // namespace tandem::s3
