// Byte-pair encoding: a piece of text is cut into its smallest symbols, and the pair of neighbours that comes
// first in the list of merges is joined, the leftmost first, until no pair of neighbours is in the list.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tandem {

struct BpeOptions {
  bool bytes = false;  // pieces are any bytes, and so is the vocabulary; else characters
  bool byte_fallback =
      false;  // a character that is not in the vocabulary becomes its bytes, <0x00> and so on
  bool ignore_merges = false;      // a piece that is in the vocabulary is one token, whatever the merges say
  bool fuse_unknown = false;       // unknown characters side by side are one token
  std::optional<int32_t> unknown;  // the token for what is not in the vocabulary; without one it is left out
};

class Bpe {
 public:
  Bpe(BpeOptions options, std::unordered_map<std::string, int32_t> vocabulary);
  // In their order. False where one of the three is not in the vocabulary.
  bool add_merge(const std::string& left, const std::string& right);

  class Encoder;  // what encoding keeps from piece to piece; one for each thread
  void encode(std::string_view piece, std::vector<int32_t>& ids, Encoder& encoder) const;

  const BpeOptions& options() const { return options_; }
  const std::unordered_map<std::string, int32_t>& vocabulary() const { return vocabulary_; }

  // Pieces that come again and again are looked up in a small table of this encoder's own.
  class Encoder {
   public:
    Encoder();

   private:
    friend class Bpe;
    static constexpr size_t kMostBytes = 24, kMostIds = 9;
    struct alignas(64) Known {  // a cache line
      std::array<uint64_t, 3> piece{};
      uint8_t bytes = 0, num_ids = 0;  // no bytes: nothing is known
      std::array<int32_t, kMostIds> ids{};
    };
    struct Symbol {
      int32_t id, before, after;  // neighbours by number; -1 where there is none, id -1 where it was joined
    };
    struct Candidate {
      int32_t rank, left, merged;
    };
    std::vector<Known> known_;
    std::vector<int32_t> ids_;
    std::vector<int32_t> ranks_;
    std::vector<Symbol> symbols_;
    std::vector<Candidate> candidates_;
  };

 private:
  struct Merge {
    uint64_t pair = kNoPair;
    int32_t rank = 0, merged = 0;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  const Merge* find(int32_t left, int32_t right) const;
  void grow();
  void first_symbols(std::string_view piece, std::vector<int32_t>& ids) const;
  void add_unknown(std::string_view character, bool& last_is_unknown, std::vector<int32_t>& ids) const;
  void merge_few(std::vector<int32_t>& ids, Encoder& encoder) const;
  void merge_many(std::vector<int32_t>& ids, Encoder& encoder) const;
  void encode_anew(std::string_view piece, std::vector<int32_t>& ids, Encoder& encoder) const;

  const BpeOptions options_;
  const std::unordered_map<std::string, int32_t> vocabulary_;
  std::array<int32_t, 256> byte_ids_{};  // of single bytes; -1 where there is none
  std::array<int32_t, 256> fallback_ids_{};
  std::vector<Merge> merges_;  // a hash table, a power of two long
  size_t num_merges_ = 0;
};

}  // namespace tandem
