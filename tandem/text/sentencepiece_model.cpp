// The file is a protocol buffer, sentencepiece_model.proto: fields of a number, a kind and a value.
#include "tandem/text/sentencepiece_model.h"

#include <cmath>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr size_t kMostPieces = size_t{1} << 24;
constexpr size_t kMostPieceBytes = size_t{1} << 16;
constexpr int kMostMatches = 32;  // the library has room for so many rules that begin alike

class Refusal {
 public:
  explicit Refusal(const std::string& origin) : origin_(origin) {}
  [[noreturn]] void operator()(std::string_view why) const {
    throw DataError("{}: not a sentencepiece model: {}", origin_, why);
  }

 private:
  const std::string& origin_;
};

struct Field {
  uint64_t number = 0;
  uint64_t value = 0;        // of a varint, or the bits of a fixed one
  std::string_view bytes{};  // of one with a length
  int kind = 0;
};

class Fields {
 public:
  Fields(std::string_view bytes, const Refusal& refuse) : rest_(bytes), refuse_(refuse) {}

  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const uint64_t key = varint();
    Field field{.number = key >> 3, .kind = static_cast<int>(key & 7)};
    switch (field.kind) {
      case 0: field.value = varint(); break;
      case 1: fixed(8, field); break;
      case 2: field.bytes = take(varint()); break;
      case 5: fixed(4, field); break;
      default: refuse_("its fields are damaged");
    }
    if (field.number == 0) refuse_("its fields are damaged");
    return field;
  }

 private:
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) refuse_("it is truncated, or something else");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    refuse_("its fields are damaged");
  }
  void fixed(size_t count, Field& field) {
    const std::string_view bytes = take(count);
    std::memcpy(&field.value, bytes.data(), bytes.size());
  }

  std::string_view rest_;
  const Refusal& refuse_;
};

void expect(const Field& field, int kind, const Refusal& refuse) {
  if (field.kind != kind) refuse("its fields are of other types than expected");
}

// piece = 1, score = 2, type = 3
void check_piece(std::string_view bytes, const Refusal& refuse) {
  Fields fields(bytes, refuse);
  std::string_view text;
  while (const auto field = fields.next()) {
    if (field->number == 1) {
      expect(*field, 2, refuse);
      text = field->bytes;
    } else if (field->number == 2) {
      expect(*field, 5, refuse);
      float score = 0;
      std::memcpy(&score, &field->value, sizeof(score));
      if (!std::isfinite(score)) refuse("a piece has no finite score");
    } else if (field->number == 3) {
      expect(*field, 0, refuse);
    }
  }
  if (text.empty()) refuse("a piece is empty");
  if (text.size() > kMostPieceBytes) refuse("a piece is too long");
  if (text.find('\0') != std::string_view::npos) refuse("a piece has a byte 0");
}

// Which characters are written as which others: a trie in a double array, of 32-bit units, and behind it the
// texts that its leaves point to, each with a 0 at its end. Every unit that a search may come to is looked
// at.
class CharacterMap {
 public:
  CharacterMap(std::string_view blob, const Refusal& refuse) : refuse_(refuse) {
    uint32_t trie_bytes = 0;
    if (blob.size() < sizeof(trie_bytes)) damaged();
    std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
    blob.remove_prefix(sizeof(trie_bytes));
    if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= blob.size()) damaged();
    units_.resize(trie_bytes / 4);
    std::memcpy(units_.data(), blob.data(), trie_bytes);
    texts_ = blob.substr(trie_bytes);
    if (texts_.back() != '\0') damaged();
  }

  void check() {
    matches_.assign(units_.size(), -1);
    reach(offset(units_[0]), 0);
    while (!reached_.empty()) {
      const uint32_t state = reached_.front();
      reached_.pop_front();
      for (uint32_t label = 0; label < 256; ++label) follow(state, label);
    }
  }

 private:
  [[noreturn]] void damaged() const { refuse_("its map of characters is damaged"); }

  static uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

  void reach(uint32_t state, int matches) {
    if (state >= units_.size() || matches > kMostMatches) damaged();
    if (matches_[state] >= matches) return;
    matches_[state] = matches;
    reached_.push_back(state);
  }

  void follow(uint32_t state, uint32_t label) {
    const uint32_t place = state ^ label;
    if (place >= units_.size()) damaged();
    const uint32_t unit = units_[place];
    if ((unit & ((1u << 31) | 0xff)) != label) return;
    const uint32_t next = place ^ offset(unit);
    const bool leaf = (unit >> 8 & 1) != 0;
    if (next >= units_.size()) damaged();
    if (leaf && (units_[next] & 0x7fffffff) >= texts_.size()) damaged();
    reach(next, matches_[state] + (leaf ? 1 : 0));
  }

  const Refusal& refuse_;
  std::vector<uint32_t> units_;
  std::string_view texts_;
  std::vector<int> matches_;  // by state: the most leaves on a way to it; -1: none leads there
  std::deque<uint32_t> reached_;
};

// name = 1, precompiled_charsmap = 2
void check_normalizer(std::string_view bytes, const Refusal& refuse) {
  Fields fields(bytes, refuse);
  while (const auto field = fields.next()) {
    if (field->number != 2) continue;
    expect(*field, 2, refuse);
    if (!field->bytes.empty()) CharacterMap(field->bytes, refuse).check();
  }
}

void check_fields(std::string_view bytes, const Refusal& refuse) {
  Fields fields(bytes, refuse);
  while (fields.next()) {
  }
}

}  // namespace

// pieces = 1, trainer_spec = 2, normalizer_spec = 3, self_test_data = 4, denormalizer_spec = 5
void check_sentencepiece_model(std::string_view bytes, const std::string& origin) {
  const Refusal refuse(origin);
  Fields fields(bytes, refuse);
  size_t num_pieces = 0;
  while (const auto field = fields.next()) {
    if (field->number > 5) continue;
    expect(*field, 2, refuse);
    if (field->number == 1) {
      check_piece(field->bytes, refuse);
      if (++num_pieces > kMostPieces) refuse("it has too many pieces");
    } else if (field->number == 3 || field->number == 5) {
      check_normalizer(field->bytes, refuse);
    } else {
      check_fields(field->bytes, refuse);
    }
  }
  if (num_pieces == 0) refuse("it has no pieces");
}

}  // namespace tandem
