#include "tandem/data/stories.h"

#include <algorithm>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/story_grammar.h"

namespace tandem {
namespace {

constexpr uint8_t kEndOfStory = '\n';

}  // namespace

Stories::Stories(int64_t context, Split split, uint64_t seed, bool separate_documents)
    : automaton_(story_automaton()),
      context_(context),
      split_(split),
      seed_(mix_bits(seed ^ hash_name(split == Split::Train ? "stories.train" : "stories.eval"))),
      separate_documents_(separate_documents) {
  TANDEM_CHECK(context > 0);
}

SampleSpec Stories::spec() const {
  return {
      .kind = SampleKind::Tokens, .context = context_, .num_classes = 256, .documents = separate_documents_};
}

std::span<const uint8_t> Stories::text_of(int64_t index) const {
  TANDEM_CHECK(index >= 0 && index < num_samples());
  static thread_local std::vector<uint8_t> text;
  text.resize(static_cast<size_t>(context_) + 1);
  automaton_.generate(Rng(seed_, static_cast<uint64_t>(index)), text);
  return text;
}

int64_t Stories::num_valid_targets(int64_t index) const {
  if (!separate_documents_) return context_;
  const auto text = text_of(index);
  return context_ - std::count(text.begin(), text.end() - 1, kEndOfStory);
}

void Stories::fill(int64_t index, const SampleBuffers& out) const {
  const auto text = text_of(index);
  int32_t segment = 0, position = 0;
  for (int64_t t = 0; t < context_; ++t) {
    const uint8_t byte = text[static_cast<size_t>(t)];
    out.tokens[t] = byte;
    out.targets[t] = text[static_cast<size_t>(t) + 1];
    if (!separate_documents_) continue;
    out.segments[t] = segment;
    out.positions[t] = position++;
    if (byte != kEndOfStory) continue;
    out.targets[t] = kNoTarget;
    ++segment;
    position = 0;
  }
}

}  // namespace tandem
