// builtin:stories: windows of text from the story grammar. Each window begins at the start of a story and
// goes on with further stories, so its exact entropy is known (Automaton::expected_loss).
#pragma once

#include "tandem/data/automaton.h"
#include "tandem/data/dataset.h"

namespace tandem {

class Stories final : public Dataset {
 public:
  static constexpr int64_t kTrainSamples = 100'000;  // an epoch; every (seed, split) has its own
  static constexpr int64_t kEvalSamples = 512;

  Stories(int64_t context, Split split, uint64_t seed);

  SampleSpec spec() const override;
  int64_t num_samples() const override { return split_ == Split::Train ? kTrainSamples : kEvalSamples; }
  void fill(int64_t index, const SampleBuffers& out) const override;
  std::optional<double> loss_floor() const override { return automaton_.expected_loss(context_); }

 private:
  const Automaton& automaton_;
  int64_t context_;
  Split split_;
  uint64_t seed_;
};

}  // namespace tandem
