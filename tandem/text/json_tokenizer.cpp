#include "tandem/text/json_tokenizer.h"

#include <algorithm>
#include <atomic>

#include "tandem/base/utf8.h"
#include "tandem/text/characters.h"
#include "tandem/text/word_patterns.h"

namespace tandem {
namespace {

// What a thread keeps from one text to the next.
struct Workplace {
  uint64_t owner = 0;
  Bpe::Encoder encoder;
  std::vector<std::string_view> pieces;
  std::deque<std::string> storage;
};

// One for each thread and tokenizer; that of another tokenizer is emptied. By number: another one may come to
// lie where one has been.
Workplace& workplace_of(uint64_t tokenizer) {
  thread_local std::unique_ptr<Workplace> own;
  if (!own || own->owner != tokenizer) {
    own = std::make_unique<Workplace>();
    own->owner = tokenizer;
  }
  return *own;
}

uint64_t next_number() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

// Names of the token that ends a document, the likeliest first.
constexpr std::string_view kEnds[] = {"<|endoftext|>", "<|end_of_text|>",       "</s>",
                                      "<eos>",         "<｜end▁of▁sentence｜>", "<|im_end|>"};

}  // namespace

JsonTokenizer::JsonTokenizer(Parts parts) : parts_(std::move(parts)), number_(next_number()) {
  for (const AddedToken& token : parts_.added) {
    added_by_id_[token.id] = &token;
    if (token.normalized) {
      in_normalized_text_.add(token, parts_.normalizer.apply(token.text));
    } else {
      in_raw_text_.add(token, token.text);
    }
    vocab_size_ = std::max<int64_t>(vocab_size_, token.id + 1);
  }
  if (!parts_.pieces.empty()) vocab_size_ = std::max<int64_t>(vocab_size_, parts_.pieces.rbegin()->first + 1);
  next_word_ = parts_.pre_tokenizer.next_word();
  has_safe_cuts_ = finds_safe_cuts();
  for (std::string_view end : kEnds) {
    const auto found = std::find_if(parts_.added.begin(), parts_.added.end(),
                                    [&](const AddedToken& token) { return token.text == end; });
    if (found == parts_.added.end()) continue;
    separator_ = found->id;
    break;
  }
}

void JsonTokenizer::encode(std::string_view text, std::vector<int32_t>& out) const {
  if (!is_utf8(text)) return encode(valid_text(text), out);
  if (in_raw_text_.empty()) return encode_between(text, true, out);
  in_raw_text_.split(text, [&](std::string_view part, const AddedToken* token) {
    if (token) {
      out.push_back(token->id);
    } else {
      encode_between(part, part.data() == text.data(), out);
    }
  });
}

void JsonTokenizer::encode_words(std::string_view text, Bpe::Encoder& encoder,
                                 std::vector<int32_t>& out) const {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    const char* const behind = next_word_(at, end);
    parts_.model->encode({at, static_cast<size_t>(behind - at)}, out, encoder);
    at = behind;
  }
}

void JsonTokenizer::encode_between(std::string_view text, bool is_start, std::vector<int32_t>& out) const {
  std::string normalized;
  if (!parts_.normalizer.empty()) {
    normalized = parts_.normalizer.apply(text);
    text = normalized;
  }
  Workplace& workplace = workplace_of(number_);
  const auto encode_part = [&](std::string_view part) {
    if (next_word_) return encode_words(part, workplace.encoder, out);
    workplace.storage.clear();
    parts_.pre_tokenizer.apply(part, is_start && part.data() == text.data(), workplace.pieces,
                               workplace.storage);
    for (std::string_view piece : workplace.pieces) parts_.model->encode(piece, out, workplace.encoder);
  };
  if (in_normalized_text_.empty()) return encode_part(text);
  in_normalized_text_.split(text, [&](std::string_view part, const AddedToken* token) {
    if (token) {
      out.push_back(token->id);
    } else {
      encode_part(part);
    }
  });
}

// No token reaches over the end of a line or takes the space beside it, the text between tokens is at most
// brought into a Unicode form, and its pattern is one that begins anew at the first letter of a line.
bool JsonTokenizer::finds_safe_cuts() const {
  const bool plain_tokens =
      std::all_of(parts_.added.begin(), parts_.added.end(), [](const AddedToken& token) {
        return !token.left_strip && !token.right_strip && !token.single_word &&
               token.text.find('\n') == std::string::npos;
      });
  return plain_tokens && parts_.normalizer.keeps_letters_at_line_starts() && next_word_ != nullptr;
}

size_t JsonTokenizer::safe_cut(std::string_view text, size_t from) const {
  return has_safe_cuts_ ? first_letter_of_a_line(text, from) : text.size();
}

std::string JsonTokenizer::decode(std::span<const int32_t> tokens, bool skip_special) const {
  std::vector<std::string> pieces;
  for (int32_t token : tokens) {
    const auto added = added_by_id_.find(token);
    if (skip_special && added != added_by_id_.end() && added->second->special) continue;
    pieces.push_back(piece(token));
  }
  return parts_.decoder.apply(std::move(pieces));
}

std::optional<int32_t> JsonTokenizer::find(std::string_view piece) const {
  for (const AddedToken& token : parts_.added)
    if (token.text == piece) return token.id;
  for (const auto& [id, text] : parts_.pieces)
    if (text == piece) return id;
  return std::nullopt;
}

std::string JsonTokenizer::piece(int32_t token) const {
  if (const auto added = added_by_id_.find(token); added != added_by_id_.end()) return added->second->text;
  if (const auto found = parts_.pieces.find(token); found != parts_.pieces.end()) return found->second;
  return std::string(kReplacement);
}

}  // namespace tandem
