#include "tandem/text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/base/utf8.h"
#include "tandem/text/characters.h"
#include "tandem/text/sentencepiece_model.h"

namespace sentencepiece::logging {
void SetMinLogLevel(int level);  // in the library, not in its header
}

namespace tandem {
namespace {

// The library takes some dozen bytes for each of the text.
constexpr size_t kMostTextBytes = size_t{256} << 20;

std::string reason_of(const sentencepiece::util::Status& status) {
  const char* message = status.error_message();
  return printable(message == nullptr || *message == '\0' ? "no reason given" : message);
}

class SentencepieceTokenizer final : public Tokenizer {
 public:
  SentencepieceTokenizer(std::string_view bytes, const std::string& origin, TextEnds ends)
      : name_(origin), digest_(digest_hex(std::as_bytes(std::span(bytes)))) {
    sentencepiece::logging::SetMinLogLevel(3);  // what it says comes as a status, too
    check_sentencepiece_model(bytes, origin);
    const auto status = processor_.LoadFromSerializedProto(bytes);
    if (!status.ok()) throw DataError("{}: not a sentencepiece model: {}", origin, reason_of(status));
    unknown_ = processor_.unk_id();
    separator_ = processor_.eos_id();
    if (ends.begin && processor_.bos_id() >= 0) before_.push_back(processor_.bos_id());
    if (ends.end && processor_.eos_id() >= 0) after_.push_back(processor_.eos_id());
    begins_decoded_ = decoded({&unknown_, 1});
  }

  std::string_view name() const override { return name_; }
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  int32_t separator() const override { return separator_; }
  void set_separator(int32_t token) override { separator_ = token; }
  std::string_view digest() const override { return digest_; }
  std::span<const int32_t> before() const override { return before_; }
  std::span<const int32_t> after() const override { return after_; }

  void encode(std::string_view text, std::vector<int32_t>& out) const override {
    if (text.size() > kMostTextBytes) {
      throw DataError(
          "{}: a text of {} is too long for sentencepiece, which takes {}; split it into documents", name_,
          format_bytes(static_cast<int64_t>(text.size())),
          format_bytes(static_cast<int64_t>(kMostTextBytes)));
    }
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    if (!status.ok()) throw DataError("{}: cannot encode: {}", name_, reason_of(status));
    out.insert(out.end(), ids.begin(), ids.end());
  }

  // The best way through a text is one through all of it.
  size_t safe_cut(std::string_view text, size_t /*from*/) const override { return text.size(); }

  // The library leaves control pieces out; where they are to be seen, it gets what lies between them.
  std::string decode(std::span<const int32_t> tokens, bool skip_special) const override {
    const auto is_text = [&](int32_t token) {
      return is_known(token) && (skip_special || !processor_.IsControl(token));
    };
    std::string text;
    for (size_t at = 0; at < tokens.size();) {
      const size_t begin = at;
      while (at < tokens.size() && is_text(tokens[at])) ++at;
      const auto run = tokens.subspan(begin, at - begin);
      text += begin == 0 ? decoded(run) : decoded_inside(run);
      for (; at < tokens.size() && !is_text(tokens[at]); ++at) text += piece(tokens[at]);
    }
    return text;
  }

  std::string piece(int32_t token) const override {
    return is_known(token) ? processor_.IdToPiece(token) : std::string(kReplacement);
  }
  std::optional<int32_t> find(std::string_view piece) const override {
    const int id = processor_.PieceToId(piece);
    return is_known(id) && processor_.IdToPiece(id) == piece ? std::optional(id) : std::nullopt;
  }

 private:
  bool is_known(int32_t token) const { return token >= 0 && token < processor_.GetPieceSize(); }

  std::string decoded(std::span<const int32_t> tokens) const {
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text);
    if (!status.ok()) throw DataError("{}: cannot decode: {}", name_, reason_of(status));
    return text;
  }

  // At the beginning of a text a space is dropped, which stands here: something has to come before.
  std::string decoded_inside(std::span<const int32_t> tokens) const {
    std::vector<int32_t> all = {unknown_};
    all.insert(all.end(), tokens.begin(), tokens.end());
    std::string text = decoded(all);
    return text.starts_with(begins_decoded_) ? text.substr(begins_decoded_.size()) : decoded(tokens);
  }

  std::string name_, digest_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<int32_t> before_, after_;
  int32_t separator_ = -1;
  int32_t unknown_ = 0;
  std::string begins_decoded_;  // what the unknown piece becomes
};

}  // namespace

std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& origin,
                                               TextEnds ends) {
  try {
    return std::make_unique<SentencepieceTokenizer>(bytes, origin, ends);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // of its tables
    throw DataError("{}: not a sentencepiece model: {}", origin, printable(error.what()));
  }
}

}  // namespace tandem
