// A tokenizer as Hugging Face's tokenizer.json describes it: added tokens are found, what is between them is
// normalised, cut into pieces, and each piece is encoded; what a template asks for is put around the whole.
#pragma once

#include <map>
#include <optional>

#include "tandem/text/added_tokens.h"
#include "tandem/text/bpe.h"
#include "tandem/text/decoder.h"
#include "tandem/text/normalizer.h"
#include "tandem/text/pre_tokenizer.h"
#include "tandem/text/tokenizer.h"

namespace tandem {

class JsonTokenizer final : public Tokenizer {
 public:
  struct Parts {
    std::string name, digest;
    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    std::unique_ptr<Bpe> model;
    Decoder decoder;
    std::vector<AddedToken> added;
    std::vector<int32_t> before, after;     // what a template puts around a text
    std::map<int32_t, std::string> pieces;  // of the vocabulary, as the file writes them
  };
  explicit JsonTokenizer(Parts parts);

  std::string_view name() const override { return parts_.name; }
  int64_t vocab_size() const override { return vocab_size_; }
  int32_t separator() const override { return separator_; }
  void set_separator(int32_t token) override { separator_ = token; }
  std::string_view digest() const override { return parts_.digest; }
  void encode(std::string_view text, std::vector<int32_t>& out) const override;
  std::span<const int32_t> before() const override { return parts_.before; }
  std::span<const int32_t> after() const override { return parts_.after; }
  size_t safe_cut(std::string_view text, size_t from) const override;
  std::string decode(std::span<const int32_t> tokens, bool skip_special) const override;
  std::string piece(int32_t token) const override;
  std::optional<int32_t> find(std::string_view piece) const override;

 private:
  bool finds_safe_cuts() const;
  void encode_words(std::string_view text, Bpe::Encoder& encoder, std::vector<int32_t>& out) const;
  void encode_between(std::string_view text, bool is_start, std::vector<int32_t>& out) const;

  Parts parts_;
  const uint64_t number_;  // no other tokenizer of this process has it
  TokenFinder in_raw_text_, in_normalized_text_;
  std::map<int32_t, const AddedToken*> added_by_id_;
  int64_t vocab_size_ = 0;
  int32_t separator_ = -1;
  NextWord next_word_ = nullptr;  // where words are all that the text is cut into
  bool has_safe_cuts_ = false;
};

}  // namespace tandem
