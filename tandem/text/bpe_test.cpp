#include "tandem/text/bpe.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem {
namespace {

// A vocabulary of single letters and of what the merges make of them.
Bpe make(BpeOptions options, const std::vector<std::pair<std::string, std::string>>& merges,
         const std::vector<std::string>& others = {}) {
  std::unordered_map<std::string, int32_t> vocabulary;
  const auto add = [&](const std::string& piece) {
    vocabulary.try_emplace(piece, static_cast<int32_t>(vocabulary.size()));
  };
  for (char c = 'a'; c <= 'z'; ++c) add(std::string(1, c));
  for (const auto& [left, right] : merges) add(left + right);
  for (const std::string& other : others) add(other);
  Bpe bpe(options, vocabulary);
  for (const auto& [left, right] : merges) EXPECT_TRUE(bpe.add_merge(left, right));
  return bpe;
}

std::string pieces(const Bpe& bpe, std::string_view text) {
  Bpe::Encoder encoder;
  std::vector<int32_t> ids;
  bpe.encode(text, ids, encoder);
  std::vector<int32_t> again;
  bpe.encode(text, again, encoder);  // now perhaps from its table
  EXPECT_EQ(ids, again);
  std::string out;
  for (int32_t id : ids) {
    for (const auto& [piece, number] : bpe.vocabulary()) {
      if (number == id) out += (out.empty() ? "" : " ") + piece;
    }
  }
  return out;
}

TEST(Bpe, JoinsThePairThatComesFirstInTheList) {
  const Bpe bpe = make({}, {{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"a", "a"}});
  EXPECT_EQ(pieces(bpe, "abc"), "abc");
  EXPECT_EQ(pieces(bpe, "abab"), "ab ab");
  EXPECT_EQ(pieces(bpe, "aaa"), "aa a");  // the leftmost first
  EXPECT_EQ(pieces(bpe, ""), "");
}

TEST(Bpe, AWholePieceMayGoBeforeAllMerges) {
  BpeOptions options;
  EXPECT_EQ(pieces(make(options, {{"a", "b"}}, {"abc"}), "abc"), "ab c");
  options.ignore_merges = true;
  EXPECT_EQ(pieces(make(options, {{"a", "b"}}, {"abc"}), "abc"), "abc");
}

TEST(Bpe, WhatIsNotInTheVocabularyIsLeftOutOrUnknownOrBytes) {
  BpeOptions options;
  EXPECT_EQ(pieces(make(options, {}), "a1b"), "a b");
  options.unknown = 26;
  EXPECT_EQ(pieces(make(options, {}, {"<unk>"}), "a12b"), "a <unk> <unk> b");
  options.fuse_unknown = true;
  EXPECT_EQ(pieces(make(options, {}, {"<unk>"}), "a12b"), "a <unk> b");
  options.byte_fallback = true;
  EXPECT_EQ(pieces(make(options, {}, {"<unk>", "<0xC3>", "<0xA9>"}), "aé1"), "a <0xC3> <0xA9> <unk>");
}

// Short pieces and long ones go different ways.
TEST(Bpe, LongPiecesAreJoinedAsShortOnes) {
  std::vector<std::pair<std::string, std::string>> merges;
  std::minstd_rand random(3);
  std::vector<std::string> known = {"a", "b", "c"};
  for (int i = 0; i < 60; ++i) {
    const std::string left = known[random() % known.size()], right = known[random() % known.size()];
    if (left.size() + right.size() > 12) continue;
    merges.emplace_back(left, right);
    known.push_back(left + right);
  }
  const Bpe bpe = make({}, merges);
  // The plain way: look for the first pair of the list again and again.
  const auto plainly = [&](const std::string& text) {
    std::vector<std::string> symbols;
    for (char c : text) symbols.emplace_back(1, c);
    for (;;) {
      size_t best = merges.size(), at = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        for (size_t rank = 0; rank < merges.size(); ++rank) {
          // A pair that stands twice has its last rank.
          const bool again = std::find(merges.begin() + static_cast<std::ptrdiff_t>(rank) + 1, merges.end(),
                                       merges[rank]) != merges.end();
          if (!again && merges[rank] == std::pair(symbols[i], symbols[i + 1]) && rank < best)
            best = rank, at = i;
        }
      }
      if (best == merges.size()) break;
      symbols[at] += symbols[at + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    std::string out;
    for (const std::string& symbol : symbols) out += (out.empty() ? "" : " ") + symbol;
    return out;
  };
  for (size_t length : {3u, 20u, 47u, 48u, 49u, 70u, 200u}) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + random() % 3);
    EXPECT_EQ(pieces(bpe, text), plainly(text)) << text;
  }
}

}  // namespace
}  // namespace tandem
