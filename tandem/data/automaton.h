// A probabilistic automaton over bytes that is unifilar: a state and the byte it emits determine the next
// state. A reader who knows where a text began therefore always knows the state, so the best possible
// prediction of the next byte is the state's own distribution, and the entropy of the text is exact.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/base/rng.h"

namespace tandem {

class Automaton {
 public:
  static constexpr uint32_t kStart = 0;

  struct Edge {
    uint8_t byte;
    uint32_t next;
    double probability;
  };

  // State s has edges [first_edge[s], first_edge[s + 1]), with probabilities that sum to one. Every edge
  // leads to the start or to a lower-numbered state, the start's own edges excepted: each cycle passes the
  // start.
  Automaton(std::vector<uint32_t> first_edge, std::vector<Edge> edges);

  uint32_t num_states() const { return static_cast<uint32_t>(first_edge_.size() - 1); }
  std::span<const Edge> edges(uint32_t state) const {
    return std::span(edges_).subspan(first_edge_[state], first_edge_[state + 1] - first_edge_[state]);
  }

  // Fills `text` from the start state; a pure function of `rng`.
  void generate(const Rng& rng, std::span<uint8_t> text) const;

  // log p of bytes [first, size) of a text that begins at the start state; -infinity if it cannot occur.
  double log_probability(std::string_view text, size_t first = 0) const;

  // The mean over t = 1..num_targets of the entropy, in nats, of byte t given bytes 0..t-1: the lowest
  // expected loss of any model on windows of num_targets + 1 bytes that begin at the start state.
  double expected_loss(int64_t num_targets) const { return mean_entropy(num_targets, /*starts=*/true); }
  // The same without bytes that the start state emits, of which nothing before them tells anything.
  double expected_loss_within_texts(int64_t num_targets) const {
    return mean_entropy(num_targets, /*starts=*/false);
  }

 private:
  double mean_entropy(int64_t num_targets, bool starts) const;

  std::vector<uint32_t> first_edge_;  // one more than there are states
  std::vector<Edge> edges_;
  std::vector<uint64_t> upto_;  // for each edge, the state's cumulative probability in units of 2^-32
};

}  // namespace tandem
