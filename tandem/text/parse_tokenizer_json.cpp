// Reads tokenizer.json. Whatever is not understood is refused by name: a part that was passed over would give
// other tokens than the model was trained with.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/json_text.h"
#include "tandem/base/utf8.h"
#include "tandem/text/byte_alphabet.h"
#include "tandem/text/json_tokenizer.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

class Parser {
 public:
  explicit Parser(std::string origin) : origin_(std::move(origin)) {}

  std::unique_ptr<Tokenizer> parse(const Json& json, std::string digest) {
    parts_.name = origin_;
    parts_.digest = std::move(digest);
    require(json.is_object(), "expected an object");
    add_normalizer(member(json, "normalizer"));
    add_pre_tokenizer(member(json, "pre_tokenizer"));
    add_decoder(member(json, "decoder"));
    add_model(member(json, "model"));
    add_added_tokens(member(json, "added_tokens"));
    add_post_processor(member(json, "post_processor"));
    return std::make_unique<JsonTokenizer>(std::move(parts_));
  }

 private:
  static const Json& member(const Json& object, const char* name) {
    static const Json kNull;
    if (!object.is_object()) return kNull;
    const auto found = object.find(name);
    return found == object.end() ? kNull : *found;
  }

  void require(bool holds, std::string_view what) const {
    if (!holds) throw DataError("{}: no tokenizer: {}", origin_, what);
  }
  [[noreturn]] void refuse(std::string_view part, const std::string& kind) const {
    throw DataError(
        "{}: {} of type '{}' is not known to this version; convert the tokenizer, or tokenize elsewhere",
        origin_, part, printable(kind));
  }

  std::string type_of(const Json& part) const {
    require(member(part, "type").is_string(), "a part has no type");
    return part["type"].get<std::string>();
  }
  std::string text_of(const Json& object, const char* name) const {
    require(member(object, name).is_string(), fmt::format("'{}' is no text", name));
    return object[name].get<std::string>();
  }
  bool flag_of(const Json& object, const char* name, bool otherwise) const {
    const Json& value = member(object, name);
    if (value.is_null()) return otherwise;
    require(value.is_boolean(), fmt::format("'{}' is neither true nor false", name));
    return value.get<bool>();
  }
  int64_t number_of(const Json& object, const char* name) const {
    const Json& value = member(object, name);
    require(value.is_number_integer(), fmt::format("'{}' is no whole number", name));
    const auto number = value.get<int64_t>();
    require(number >= 0 && number < (int64_t{1} << 30), fmt::format("'{}' is {}", name, number));
    return number;
  }
  const Json& list_of(const Json& object, const char* name) const {
    require(member(object, name).is_array(), fmt::format("'{}' is no list", name));
    return object[name];
  }

  Pattern pattern_of(const Json& object) const {
    const Json& pattern = member(object, "pattern");
    if (member(pattern, "String").is_string()) {
      require(!pattern["String"].get_ref<const std::string&>().empty(), "an empty pattern");
      return Pattern::literal(pattern["String"].get<std::string>());
    }
    require(member(pattern, "Regex").is_string(), "a pattern is neither String nor Regex");
    return Pattern::regex(pattern["Regex"].get<std::string>(), origin_);
  }

  void add_normalizer(const Json& part) {
    if (part.is_null()) return;
    const std::string type = type_of(part);
    if (type == "Sequence") {
      for (const Json& inner : list_of(part, "normalizers")) add_normalizer(inner);
    } else if (type == "NFC") {
      parts_.normalizer.add(UnicodeForm::Nfc);
    } else if (type == "NFD") {
      parts_.normalizer.add(UnicodeForm::Nfd);
    } else if (type == "NFKC") {
      parts_.normalizer.add(UnicodeForm::Nfkc);
    } else if (type == "NFKD") {
      parts_.normalizer.add(UnicodeForm::Nfkd);
    } else if (type == "Prepend") {
      parts_.normalizer.add(Prepend{text_of(part, "prepend")});
    } else if (type == "Replace") {
      parts_.normalizer.add(Replace{pattern_of(part), text_of(part, "content")});
    } else {
      refuse("a normalizer", type);
    }
  }

  void add_pre_tokenizer(const Json& part) {
    if (part.is_null()) return;
    const std::string type = type_of(part);
    if (type == "Sequence") {
      for (const Json& inner : list_of(part, "pretokenizers")) add_pre_tokenizer(inner);
    } else if (type == "ByteLevel") {
      is_byte_level_ = true;
      if (flag_of(part, "add_prefix_space", true)) parts_.pre_tokenizer.add(AddPrefixSpace{});
      if (flag_of(part, "use_regex", true))
        parts_.pre_tokenizer.add(
            SplitByPattern{Pattern::regex(std::string(kGpt2Words), origin_), SplitBehavior::Isolated, false});
    } else if (type == "Split") {
      parts_.pre_tokenizer.add(
          SplitByPattern{pattern_of(part), behavior_of(part), flag_of(part, "invert", false)});
    } else if (type == "Digits") {
      parts_.pre_tokenizer.add(SplitDigits{flag_of(part, "individual_digits", false)});
    } else if (type == "Metaspace") {
      parts_.pre_tokenizer.add(
          MarkSpaces{text_of(part, "replacement"), begin_of(part), flag_of(part, "split", true)});
    } else {
      refuse("a pre_tokenizer", type);
    }
  }

  SplitBehavior behavior_of(const Json& part) const {
    const std::string name = text_of(part, "behavior");
    if (name == "Removed") return SplitBehavior::Removed;
    if (name == "Isolated") return SplitBehavior::Isolated;
    if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
    if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
    if (name == "Contiguous") return SplitBehavior::Contiguous;
    refuse("a Split's behavior", name);
  }

  // Older files say `add_prefix_space` alone.
  MarkSpaces::Begin begin_of(const Json& part) const {
    const Json& scheme = member(part, "prepend_scheme");
    if (scheme.is_null())
      return flag_of(part, "add_prefix_space", true) ? MarkSpaces::Begin::Always : MarkSpaces::Begin::Never;
    const std::string name = text_of(part, "prepend_scheme");
    if (name == "always") return MarkSpaces::Begin::Always;
    if (name == "first") return MarkSpaces::Begin::First;
    if (name == "never") return MarkSpaces::Begin::Never;
    refuse("a Metaspace's prepend_scheme", name);
  }

  void add_decoder(const Json& part) {
    if (part.is_null()) return parts_.decoder.join_with_spaces();
    const std::string type = type_of(part);
    if (type == "Sequence") {
      for (const Json& inner : list_of(part, "decoders")) add_decoder(inner);
    } else if (type == "ByteLevel") {
      parts_.decoder.add(ByteAlphabet{});
    } else if (type == "Replace") {
      parts_.decoder.add(ReplaceInPieces{pattern_of(part), text_of(part, "content")});
    } else if (type == "ByteFallback") {
      parts_.decoder.add(JoinBytes{});
    } else if (type == "Fuse") {
      parts_.decoder.add(Fuse{});
    } else if (type == "Strip") {
      const std::string character = text_of(part, "content");
      require(character.size() == 1 && character[0] > 0,
              "a Strip's content is more than one plain character");
      parts_.decoder.add(StripPieces{static_cast<char32_t>(character[0]),
                                     static_cast<int>(number_of(part, "start")),
                                     static_cast<int>(number_of(part, "stop"))});
    } else if (type == "Metaspace") {
      parts_.decoder.add(
          UnmarkSpaces{text_of(part, "replacement"), begin_of(part) != MarkSpaces::Begin::Never});
    } else {
      refuse("a decoder", type);
    }
  }

  void add_model(const Json& part) {
    require(part.is_object(), "'model' is missing");
    // Old files leave the type out.
    const std::string type = member(part, "type").is_null() ? "BPE" : type_of(part);
    if (type != "BPE") refuse("a model", type);
    require_empty(part, "continuing_subword_prefix");
    require_empty(part, "end_of_word_suffix");
    require(member(part, "dropout").is_null() || member(part, "dropout") == 0,
            "merges with dropout are not repeatable");
    const Json& vocabulary = member(part, "vocab");
    require(vocabulary.is_object() && !vocabulary.empty(), "'vocab' is missing");
    std::unordered_map<std::string, int32_t> ids;
    ids.reserve(vocabulary.size());
    for (const auto& [text, id] : vocabulary.items()) {
      require(id.is_number_integer() && id >= 0 && id < (1 << 30),
              fmt::format("the id of '{}' is none", printable(text)));
      const auto number = id.get<int32_t>();
      parts_.pieces[number] = text;
      if (const auto piece = as_symbols(text)) ids.emplace(*piece, number);
    }
    BpeOptions options;
    options.bytes = is_byte_level_;
    options.byte_fallback = flag_of(part, "byte_fallback", false);
    options.ignore_merges = flag_of(part, "ignore_merges", false);
    options.fuse_unknown = flag_of(part, "fuse_unk", false);
    if (const Json& unknown = member(part, "unk_token"); unknown.is_string()) {
      const auto found = ids.find(unknown.get<std::string>());
      require(found != ids.end(), "unk_token is not in the vocabulary");
      options.unknown = found->second;
    }
    parts_.model = std::make_unique<Bpe>(options, std::move(ids));
    for (const Json& merge : list_of(part, "merges")) add_merge(merge);
  }

  void require_empty(const Json& part, const char* name) const {
    const Json& value = member(part, name);
    if (!value.is_null() && value != "") refuse(fmt::format("a model's {}", name), value.dump());
  }

  // Bytes where the vocabulary is written in the byte alphabet; nothing for a piece that no bytes give.
  std::optional<std::string> as_symbols(const std::string& text) const {
    return is_byte_level_ ? bytes_of_piece(text) : std::optional(text);
  }

  // "a b", or ["a", "b"].
  void add_merge(const Json& merge) {
    std::string left, right;
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      require(space != std::string::npos && text.find(' ', space + 1) == std::string::npos,
              "a merge is no pair");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      require(merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
              "a merge is no pair");
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    }
    const auto a = as_symbols(left), b = as_symbols(right);
    if (!a || !b || !parts_.model->add_merge(*a, *b))
      throw DataError("{}: no tokenizer: the merge '{}' + '{}' is not in the vocabulary", origin_,
                      printable(left), printable(right));
  }

  void add_added_tokens(const Json& list) {
    if (list.is_null()) return;
    require(list.is_array(), "'added_tokens' is no list");
    for (const Json& item : list) {
      AddedToken token;
      token.id = static_cast<int32_t>(number_of(item, "id"));
      token.text = text_of(item, "content");
      token.single_word = flag_of(item, "single_word", false);
      token.left_strip = flag_of(item, "lstrip", false);
      token.right_strip = flag_of(item, "rstrip", false);
      token.special = flag_of(item, "special", false);
      token.normalized = flag_of(item, "normalized", !token.special);
      parts_.added.push_back(std::move(token));
    }
  }

  void add_post_processor(const Json& part) {
    if (part.is_null()) return;
    const std::string type = type_of(part);
    if (type == "Sequence") {
      for (const Json& inner : list_of(part, "processors")) add_post_processor(inner);
    } else if (type == "TemplateProcessing") {
      add_template(part);
    } else if (type != "ByteLevel") {  // which only mends the places of tokens in the text
      refuse("a post_processor", type);
    }
  }

  bool is_token(int32_t id) const {
    const auto is_it = [&](const AddedToken& token) { return token.id == id; };
    return parts_.pieces.contains(id) || std::any_of(parts_.added.begin(), parts_.added.end(), is_it);
  }

  void add_template(const Json& part) {
    bool seen = false;
    for (const Json& item : list_of(part, "single")) {
      if (!member(item, "Sequence").is_null()) {
        seen = true;
        continue;
      }
      const std::string name = text_of(member(item, "SpecialToken"), "id");
      const Json& token = member(member(part, "special_tokens"), name.c_str());
      for (const Json& id : list_of(token, "ids")) {
        require(id.is_number_integer() && id >= 0 && id < (1 << 30) && is_token(id.get<int32_t>()),
                fmt::format("the id {} of '{}' in the template is no token's", id.dump(), printable(name)));
        (seen ? parts_.after : parts_.before).push_back(id.get<int32_t>());
      }
    }
    require(seen, "a template without the text");
  }

  const std::string origin_;
  JsonTokenizer::Parts parts_;
  bool is_byte_level_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& origin) {
  check_json_depth(text, origin);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw DataError("{}: no tokenizer: not valid JSON", origin);
  return Parser(origin).parse(json, digest_hex(std::as_bytes(std::span(text))));
}

}  // namespace tandem
