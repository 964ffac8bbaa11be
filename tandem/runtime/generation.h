// A text that goes on, token by token: runs a step of compile_generation, and knows how far its cache of keys
// and values reaches. Many tokens go through `prefill`, which needs the weights once for all of them; the
// last one goes through `decode`, which gives the logits that follow it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tandem/runtime/session.h"

namespace tandem {

// Rows of a prefill where the caller has no better number: enough to keep a CPU at its sums.
inline constexpr int64_t kPrefillRows = 64;

class Generation {
 public:
  explicit Generation(Session& session);  // which outlives it

  // Adds tokens, at least one, to the text so far; logits of what follows them, valid until the next call.
  // They must fit into the cache.
  std::span<const float> add(std::span<const int32_t> tokens);
  // Forgets the text: the next token is the first.
  void restart() { position_ = 0; }

  int64_t position() const { return position_; }  // tokens so far

 private:
  void prefill(std::span<const int32_t> tokens);
  void decode(int32_t token);
  void put(const Executable& executable, std::span<const int32_t> tokens, int64_t real);

  Session& session_;
  int64_t prefill_rows_;
  int64_t position_ = 0;
  std::vector<int32_t> padded_;
};

// What one run of `decode` reads of the weights, in bytes: all but the rows of embeddings that it does not
// look up.
int64_t weights_read(const CompiledStep& step);

}  // namespace tandem
