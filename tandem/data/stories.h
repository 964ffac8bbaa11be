// builtin:stories: windows of text from the story grammar. Each window begins at the start of a story and
// goes on with further stories, so its exact entropy is known (Automaton::expected_loss). A story is a
// document; it ends with its line.
#pragma once

#include <span>

#include "tandem/data/automaton.h"
#include "tandem/data/dataset.h"

namespace tandem {

class Stories final : public Dataset {
 public:
  static constexpr int64_t kTrainSamples = 100'000;  // an epoch; every (seed, split) has its own
  static constexpr int64_t kEvalSamples = 512;

  Stories(int64_t context, Split split, uint64_t seed, bool separate_documents = false);

  SampleSpec spec() const override;
  int64_t num_samples() const override { return split_ == Split::Train ? kTrainSamples : kEvalSamples; }
  void fill(int64_t index, const SampleBuffers& out) const override;
  int64_t num_valid_targets(int64_t index) const override;
  bool knows_documents() const override { return true; }
  std::optional<double> loss_floor() const override {
    return separate_documents_ ? automaton_.expected_loss_within_texts(context_)
                               : automaton_.expected_loss(context_);
  }

 private:
  std::span<const uint8_t> text_of(int64_t index) const;  // valid until the thread asks again

  const Automaton& automaton_;
  int64_t context_;
  Split split_;
  uint64_t seed_;
  bool separate_documents_;
};

}  // namespace tandem
