#include "tandem/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "tandem/text/characters.h"

namespace tandem {
namespace {

constexpr size_t kKnownPieces = size_t{1} << 16;
constexpr size_t kFewSymbols = 48;  // up to here a look at all pairs is quicker than a heap
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

size_t slot_of(uint64_t pair, size_t slots) {
  pair *= 0x9e3779b97f4a7c15ull;
  return static_cast<size_t>(pair >> 20) & (slots - 1);
}

}  // namespace

Bpe::Encoder::Encoder() : known_(kKnownPieces) {}

Bpe::Bpe(BpeOptions options, std::unordered_map<std::string, int32_t> vocabulary)
    : options_(options), vocabulary_(std::move(vocabulary)), merges_(1024) {
  const auto id_of = [&](const std::string& piece) {
    const auto found = vocabulary_.find(piece);
    return found == vocabulary_.end() ? -1 : found->second;
  };
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = id_of(std::string(1, static_cast<char>(byte)));
    fallback_ids_[byte] = id_of(fmt::format("<0x{:02X}>", byte));
  }
}

bool Bpe::add_merge(const std::string& left, const std::string& right) {
  const auto a = vocabulary_.find(left), b = vocabulary_.find(right), both = vocabulary_.find(left + right);
  if (a == vocabulary_.end() || b == vocabulary_.end() || both == vocabulary_.end()) return false;
  if (2 * (num_merges_ + 1) > merges_.size()) grow();
  const uint64_t pair = pair_of(a->second, b->second);
  size_t slot = slot_of(pair, merges_.size());
  while (merges_[slot].pair != kNoPair && merges_[slot].pair != pair)
    slot = (slot + 1) & (merges_.size() - 1);
  // A pair that stands twice has the rank of its last place, as in a dictionary.
  merges_[slot] = {pair, static_cast<int32_t>(num_merges_), both->second};
  ++num_merges_;
  return true;
}

void Bpe::grow() {
  std::vector<Merge> larger(merges_.size() * 2);
  for (const Merge& merge : merges_) {
    if (merge.pair == kNoPair) continue;
    size_t slot = slot_of(merge.pair, larger.size());
    while (larger[slot].pair != kNoPair) slot = (slot + 1) & (larger.size() - 1);
    larger[slot] = merge;
  }
  merges_.swap(larger);
}

const Bpe::Merge* Bpe::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  for (size_t slot = slot_of(pair, merges_.size());; slot = (slot + 1) & (merges_.size() - 1)) {
    if (merges_[slot].pair == pair) return &merges_[slot];
    if (merges_[slot].pair == kNoPair) return nullptr;
  }
}

namespace {

uint64_t load(const char* from) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, from, 8);
  return bytes;
}

// Up to 24 bytes as three numbers, which together with their count say all of them: of many bytes the first
// eight, the last eight and those in between, which overlap.
std::array<uint64_t, 3> words_of(std::string_view piece) {
  const char* const at = piece.data();
  const size_t size = piece.size();
  if (size > 16) return {load(at), load(at + size - 8), load(at + 8)};
  if (size > 8) return {load(at), load(at + size - 8), 0};
  if (size >= 4) {
    uint32_t first = 0, last = 0;
    std::memcpy(&first, at, 4);
    std::memcpy(&last, at + size - 4, 4);
    return {uint64_t{last} << 32 | first, 0, 0};
  }
  const auto byte = [&](size_t i) { return uint64_t{static_cast<uint8_t>(at[i])}; };
  return {byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16, 0, 0};
}

size_t slot_of(const std::array<uint64_t, 3>& words, size_t bytes) {
  const uint64_t mixed =
      (words[0] ^ (words[1] * 0x9e3779b97f4a7c15ull) ^ (words[2] * 0xc2b2ae3d27d4eb4full) ^ bytes) *
      0xff51afd7ed558ccdull;
  return static_cast<size_t>((mixed ^ mixed >> 32) * 0xc4ceb9fe1a85ec53ull >> 40) % kKnownPieces;
}

}  // namespace

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids, Encoder& encoder) const {
  if (piece.empty()) return;
  if (piece.size() > Encoder::kMostBytes) {
    encode_anew(piece, encoder.ids_, encoder);
    ids.insert(ids.end(), encoder.ids_.begin(), encoder.ids_.end());
    return;
  }
  const std::array<uint64_t, 3> words = words_of(piece);
  Encoder::Known& known = encoder.known_[slot_of(words, piece.size())];
  if (known.bytes != piece.size() || known.piece != words) {
    encode_anew(piece, encoder.ids_, encoder);
    if (encoder.ids_.size() > Encoder::kMostIds) {
      ids.insert(ids.end(), encoder.ids_.begin(), encoder.ids_.end());
      return;
    }
    known.bytes = static_cast<uint8_t>(piece.size());
    known.num_ids = static_cast<uint8_t>(encoder.ids_.size());
    known.piece = words;
    std::copy(encoder.ids_.begin(), encoder.ids_.end(), known.ids.begin());
  }
  if (known.num_ids == 1) return ids.push_back(known.ids[0]);
  ids.insert(ids.end(), known.ids.begin(), known.ids.begin() + known.num_ids);
}

void Bpe::encode_anew(std::string_view piece, std::vector<int32_t>& ids, Encoder& encoder) const {
  ids.clear();
  if (options_.ignore_merges) {
    if (const auto whole = vocabulary_.find(std::string(piece)); whole != vocabulary_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  first_symbols(piece, ids);
  if (ids.size() <= kFewSymbols) {
    merge_few(ids, encoder);
  } else {
    merge_many(ids, encoder);
  }
}

void Bpe::first_symbols(std::string_view piece, std::vector<int32_t>& ids) const {
  bool last_is_unknown = false;
  while (!piece.empty()) {
    const size_t size = options_.bytes ? 1 : std::min(character_bytes(piece[0]), piece.size());
    const std::string_view symbol = piece.substr(0, size);
    piece.remove_prefix(size);
    int32_t id = -1;
    if (size == 1) {
      id = byte_ids_[static_cast<uint8_t>(symbol[0])];
    } else if (const auto found = vocabulary_.find(std::string(symbol)); found != vocabulary_.end()) {
      id = found->second;
    }
    if (id < 0) {
      add_unknown(symbol, last_is_unknown, ids);
      continue;
    }
    ids.push_back(id);
    last_is_unknown = false;
  }
}

void Bpe::add_unknown(std::string_view character, bool& last_is_unknown, std::vector<int32_t>& ids) const {
  const auto fallback = [&](char byte) { return fallback_ids_[static_cast<uint8_t>(byte)]; };
  if (options_.byte_fallback &&
      std::all_of(character.begin(), character.end(), [&](char byte) { return fallback(byte) >= 0; })) {
    for (char byte : character) ids.push_back(fallback(byte));
    last_is_unknown = false;
    return;
  }
  if (!options_.unknown) return;
  if (!(options_.fuse_unknown && last_is_unknown)) ids.push_back(*options_.unknown);
  last_is_unknown = true;
}

// Ranks of all pairs are kept beside the symbols; the smallest is looked for anew each time.
void Bpe::merge_few(std::vector<int32_t>& ids, Encoder& encoder) const {
  if (ids.size() < 2) return;
  std::vector<int32_t>& ranks = encoder.ranks_;
  const auto rank_at = [&](size_t i) {
    const Merge* merge = i + 1 < ids.size() ? find(ids[i], ids[i + 1]) : nullptr;
    return merge ? merge->rank : kNoRank;
  };
  ranks.clear();
  for (size_t i = 0; i < ids.size(); ++i) ranks.push_back(rank_at(i));
  for (;;) {
    const auto smallest = std::min_element(ranks.begin(), ranks.end());
    if (*smallest == kNoRank) return;
    const auto at = static_cast<size_t>(smallest - ranks.begin());
    ids[at] = find(ids[at], ids[at + 1])->merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    ranks[at] = rank_at(at);
    if (at > 0) ranks[at - 1] = rank_at(at - 1);
  }
}

// Pairs wait in a heap; one whose symbols have changed meanwhile is passed over.
void Bpe::merge_many(std::vector<int32_t>& ids, Encoder& encoder) const {
  auto& symbols = encoder.symbols_;
  auto& heap = encoder.candidates_;
  symbols.clear();
  heap.clear();
  const auto later = [](const Encoder::Candidate& a, const Encoder::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  const auto consider = [&](int32_t left) {
    const auto& symbol = symbols[static_cast<size_t>(left)];
    if (symbol.after < 0) return;
    const Merge* merge = find(symbol.id, symbols[static_cast<size_t>(symbol.after)].id);
    if (!merge) return;
    heap.push_back({merge->rank, left, merge->merged});
    std::push_heap(heap.begin(), heap.end(), later);
  };
  const auto count = static_cast<int32_t>(ids.size());
  for (int32_t i = 0; i < count; ++i)
    symbols.push_back({ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  for (int32_t i = 0; i < count; ++i) consider(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Encoder::Candidate best = heap.back();
    heap.pop_back();
    auto& left = symbols[static_cast<size_t>(best.left)];
    if (left.id < 0 || left.after < 0) continue;
    auto& right = symbols[static_cast<size_t>(left.after)];
    const Merge* merge = find(left.id, right.id);
    if (!merge || merge->rank != best.rank) continue;
    left.id = best.merged;
    right.id = -1;
    left.after = right.after;
    if (right.after >= 0) symbols[static_cast<size_t>(right.after)].before = best.left;
    if (left.before >= 0) consider(left.before);
    consider(best.left);
  }
  ids.clear();
  for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].after)
    ids.push_back(symbols[static_cast<size_t>(at)].id);
}

}  // namespace tandem
