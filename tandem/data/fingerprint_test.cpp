#include "tandem/data/fingerprint.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem {
namespace {

struct Words : Dataset {
  std::vector<int32_t> words;
  explicit Words(int32_t count) {
    for (int32_t i = 0; i < count; ++i) words.push_back(i * 7);
  }
  SampleSpec spec() const override { return {.context = 2, .num_classes = 1 << 20}; }
  int64_t num_samples() const override { return static_cast<int64_t>(words.size()) / 2 - 1; }
  void fill(int64_t index, const SampleBuffers& out) const override {
    for (int i = 0; i < 2; ++i) {
      out.tokens[i] = words[static_cast<size_t>(2 * index + i)];
      out.targets[i] = words[static_cast<size_t>(2 * index + i + 1)];
    }
  }
};

TEST(Fingerprint, IsTheSameForTheSameSamples) {
  EXPECT_EQ(fingerprint(Words(1000)), fingerprint(Words(1000)));
  EXPECT_EQ(fingerprint(Words(4)), fingerprint(Words(4)));
}

TEST(Fingerprint, SeesWhatWasAddedCutOffOrWrittenOver) {
  const std::string before = fingerprint(Words(1000));
  EXPECT_NE(fingerprint(Words(1002)), before);
  EXPECT_NE(fingerprint(Words(900)), before);
  Words other(1000);
  for (int32_t& word : other.words) word = word == 7 ? 8 : word;  // in the first sample
  EXPECT_NE(fingerprint(other), before);
}

}  // namespace
}  // namespace tandem
