#include "tandem/store/s3/xml.h"

#include <charconv>
#include <cstdint>

#include "tandem/base/error.h"

namespace tandem::s3 {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == ':';
}

void append_utf8(std::string& text, uint32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xc0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xe0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xf0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  XmlElement document() {
    if (starts_with("\xef\xbb\xbf")) at_ += 3;
    skip_between();
    XmlElement root = element(1);
    skip_between();
    if (at_ != text_.size()) fail("something behind the document");
    return root;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw DataError("not XML of S3: {} at byte {}", what, at_);
  }
  bool starts_with(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (!starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  void expect(std::string_view what, const char* complaint) {
    if (!take(what)) fail(complaint);
  }
  void skip_spaces() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  void skip_past(std::string_view end, const char* complaint) {
    const size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) fail(complaint);
    at_ = found + end.size();
  }
  // Spaces, comments and <?xml ...?> around the document.
  void skip_between() {
    for (;;) {
      skip_spaces();
      if (take("<?")) {
        skip_past("?>", "an instruction without its end");
      } else if (take("<!--")) {
        skip_past("-->", "a comment without its end");
      } else {
        return;
      }
    }
  }
  std::string_view name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    if (at_ == begin) fail("no name");
    return text_.substr(begin, at_ - begin);
  }
  // Attributes say nothing that is needed here.
  void skip_attributes() {
    for (;;) {
      const size_t before = at_;
      skip_spaces();
      if (at_ == text_.size() || text_[at_] == '>' || text_[at_] == '/') return;
      if (at_ == before) fail("no space before an attribute");
      name();
      skip_spaces();
      expect("=", "an attribute without a value");
      skip_spaces();
      if (at_ == text_.size() || (text_[at_] != '"' && text_[at_] != '\'')) fail("a value without quotes");
      const char quote = text_[at_++];
      while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '<') ++at_;
      if (at_ == text_.size() || text_[at_] != quote) fail("a value without its end");
      ++at_;
    }
  }
  void append_entity(std::string& text) {
    constexpr size_t kLongest = 12;
    const size_t end = text_.substr(at_, kLongest).find(';');
    if (end == std::string_view::npos) fail("an entity without its end");
    std::string_view entity = text_.substr(at_ + 1, end - 1);
    if (entity == "amp") {
      text += '&';
    } else if (entity == "lt") {
      text += '<';
    } else if (entity == "gt") {
      text += '>';
    } else if (entity == "quot") {
      text += '"';
    } else if (entity == "apos") {
      text += '\'';
    } else if (entity.starts_with("#")) {
      append_character(text, entity.substr(1));
    } else {
      fail("an unknown entity");
    }
    at_ += end + 1;
  }
  void append_character(std::string& text, std::string_view digits) {
    const int base = digits.starts_with("x") ? 16 : 10;
    if (base == 16) digits.remove_prefix(1);
    uint32_t code = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    if (error != std::errc() || end != digits.data() + digits.size() || code == 0 || code > 0x10ffff ||
        (code >= 0xd800 && code < 0xe000))
      fail("a character that is none");
    append_utf8(text, code);
  }

  XmlElement element(int level) {
    if (level > kMostXmlLevels) fail("too many levels");
    if (++num_elements_ > kMostXmlElements) fail("too many elements");
    expect("<", "no element");
    const std::string_view full = name();
    XmlElement result;
    result.name = full.substr(full.rfind(':') + 1);
    if (result.name.empty()) fail("no name");
    skip_attributes();
    if (take("/>")) return result;
    expect(">", "a tag without its end");
    fill(result, level);
    expect(full, "the end of another element");
    skip_spaces();
    expect(">", "a tag without its end");
    if (!result.children.empty()) trim(result.text);
    return result;
  }
  // Up to and with the "</" of its end.
  void fill(XmlElement& result, int level) {
    for (;;) {
      if (at_ == text_.size()) fail("cut off");
      if (text_[at_] == '&') {
        append_entity(result.text);
      } else if (text_[at_] != '<') {
        if (text_[at_] == '\0') fail("a zero byte");
        result.text += text_[at_++];
      } else if (take("</")) {
        return;
      } else if (take("<!--")) {
        skip_past("-->", "a comment without its end");
      } else if (take("<![CDATA[")) {
        const size_t begin = at_;
        skip_past("]]>", "CDATA without its end");
        result.text += text_.substr(begin, at_ - begin - 3);
      } else {
        result.children.push_back(element(level + 1));
      }
    }
  }
  static void trim(std::string& text) {
    size_t begin = 0, end = text.size();
    while (begin < end && is_space(text[begin])) ++begin;
    while (end > begin && is_space(text[end - 1])) --end;
    text = text.substr(begin, end - begin);
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t num_elements_ = 0;
};

}  // namespace

const XmlElement* XmlElement::find(std::string_view child) const {
  for (const XmlElement& element : children) {
    if (element.name == child) return &element;
  }
  return nullptr;
}

std::string XmlElement::text_of(std::string_view child) const {
  const XmlElement* element = find(child);
  return element != nullptr ? element->text : std::string();
}

XmlElement parse_xml(std::string_view text) { return Parser(text).document(); }

std::string xml_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      case '\r': escaped += "&#13;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

}  // namespace tandem::s3
