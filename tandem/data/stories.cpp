#include "tandem/data/stories.h"

#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/story_grammar.h"

namespace tandem {

Stories::Stories(int64_t context, Split split, uint64_t seed)
    : automaton_(story_automaton()),
      context_(context),
      split_(split),
      seed_(mix_bits(seed ^ hash_name(split == Split::Train ? "stories.train" : "stories.eval"))) {
  TANDEM_CHECK(context > 0);
}

SampleSpec Stories::spec() const {
  return {.kind = SampleKind::Tokens, .context = context_, .num_classes = 256};
}

void Stories::fill(int64_t index, const SampleBuffers& out) const {
  TANDEM_CHECK(index >= 0 && index < num_samples());
  static thread_local std::vector<uint8_t> text;
  text.resize(static_cast<size_t>(context_) + 1);
  automaton_.generate(Rng(seed_, static_cast<uint64_t>(index)), text);
  for (int64_t t = 0; t < context_; ++t) {
    out.tokens[t] = text[static_cast<size_t>(t)];
    out.targets[t] = text[static_cast<size_t>(t) + 1];
  }
}

}  // namespace tandem
