// Builds an automaton backwards, each state from what follows it. Equal states are made once, and branches
// that begin with the same bytes are merged until they differ: that keeps the result small and unifilar.
#pragma once

#include <string_view>
#include <vector>

#include "tandem/data/automaton.h"

namespace tandem {

class AutomatonBuilder {
 public:
  using State = uint32_t;
  struct Branch {
    double weight;
    State state;
    std::string_view before = {};  // text on the way to `state`, not yet made into states
  };

  AutomatonBuilder();

  State text(std::string_view bytes, State next);
  State choice(std::vector<Branch> branches);  // weights need not sum to one

  // A pattern is text with groups of equally likely alternatives: "a (red|(light|dark) blue) ball".
  State pattern(std::string_view pattern, State next);

  // `first` becomes what the start state does; until then the start state may only be continued to.
  Automaton finish(State first);

 private:
  using Edge = Automaton::Edge;
  std::span<const Edge> edges_of(State state) const {
    return std::span(edges_).subspan(first_edge_[state], first_edge_[state + 1] - first_edge_[state]);
  }
  State intern(std::span<const Edge> edges);
  size_t slot_of(std::span<const Edge> edges) const;
  State alternatives(std::string_view pattern, size_t& at, State next);

  std::vector<uint32_t> first_edge_;
  std::vector<Edge> edges_;
  std::vector<State> table_;  // open addressing over all states; 0, the start, marks a free slot
};

}  // namespace tandem
