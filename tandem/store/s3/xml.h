// The XML that S3 answers with, and nothing more: elements with text or elements in them. Whatever else XML
// has (document types, entities of one's own, more than a few levels) is refused, so that an answer cannot
// make its reader work more than its length.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::s3 {

struct XmlElement {
  std::string name;  // without a prefix of a name space
  std::string text;  // what stands between its elements; without spaces around it where it has elements
  std::vector<XmlElement> children;

  const XmlElement* find(std::string_view child) const;  // the first of that name, or nullptr
  std::string text_of(std::string_view child) const;     // empty where there is none
};

inline constexpr int kMostXmlLevels = 12;
inline constexpr size_t kMostXmlElements = 100'000;  // a page of a list has some 7,000

// Throws DataError "not XML of S3: ... at byte N".
XmlElement parse_xml(std::string_view text);

// `text` with &, <, > and quotes written so that they mean themselves.
std::string xml_escaped(std::string_view text);

}  // namespace tandem::s3
