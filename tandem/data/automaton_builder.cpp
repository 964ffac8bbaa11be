#include "tandem/data/automaton_builder.h"

#include <algorithm>
#include <bit>

#include "tandem/base/error.h"

namespace tandem {

AutomatonBuilder::AutomatonBuilder() : first_edge_{0, 0}, table_(1 << 16, 0) {}

size_t AutomatonBuilder::slot_of(std::span<const Edge> edges) const {
  uint64_t hash = edges.size();
  for (const Edge& edge : edges) {
    hash =
        mix_bits(hash ^ (uint64_t{edge.byte} << 32 | edge.next)) ^ std::bit_cast<uint64_t>(edge.probability);
  }
  const auto equal = [](const Edge& a, const Edge& b) {
    return a.byte == b.byte && a.next == b.next && a.probability == b.probability;
  };
  size_t slot = mix_bits(hash) & (table_.size() - 1);
  while (table_[slot] != 0) {
    const auto other = edges_of(table_[slot]);
    if (std::equal(edges.begin(), edges.end(), other.begin(), other.end(), equal)) break;
    slot = (slot + 1) & (table_.size() - 1);
  }
  return slot;
}

AutomatonBuilder::State AutomatonBuilder::intern(std::span<const Edge> edges) {
  const auto num_states = static_cast<State>(first_edge_.size() - 1);
  if (2 * size_t{num_states} > table_.size()) {
    table_.assign(table_.size() * 4, 0);
    for (State state = 1; state < num_states; ++state) table_[slot_of(edges_of(state))] = state;
  }
  const size_t slot = slot_of(edges);
  if (table_[slot] == 0) {
    table_[slot] = num_states;
    edges_.insert(edges_.end(), edges.begin(), edges.end());
    first_edge_.push_back(static_cast<uint32_t>(edges_.size()));
  }
  return table_[slot];
}

AutomatonBuilder::State AutomatonBuilder::text(std::string_view bytes, State next) {
  for (size_t i = bytes.size(); i-- > 0;) {
    const Edge edge{static_cast<uint8_t>(bytes[i]), next, 1.0};
    next = intern({&edge, 1});
  }
  return next;
}

AutomatonBuilder::State AutomatonBuilder::choice(std::vector<Branch> branches) {
  TANDEM_CHECK(!branches.empty());
  const Branch& front = branches.front();
  const bool all_same = std::all_of(branches.begin(), branches.end(), [&](const Branch& branch) {
    return branch.state == front.state && branch.before == front.before;
  });
  if (all_same) return text(front.before, front.state);
  double total = 0.0;
  for (const Branch& branch : branches) total += branch.weight;
  struct Way {
    uint8_t byte;
    Branch branch;
  };
  std::vector<Way> ways;
  ways.reserve(branches.size());
  for (const Branch& branch : branches) {
    const double weight = branch.weight / total;
    if (!branch.before.empty()) {
      ways.push_back(
          {static_cast<uint8_t>(branch.before[0]), {weight, branch.state, branch.before.substr(1)}});
      continue;
    }
    TANDEM_CHECK(branch.state != Automaton::kStart, "a choice cannot look into the start before it is known");
    for (const Edge& edge : edges_of(branch.state)) {
      ways.push_back({edge.byte, {weight * edge.probability, edge.next, {}}});
    }
  }
  std::stable_sort(ways.begin(), ways.end(), [](const Way& a, const Way& b) { return a.byte < b.byte; });
  std::vector<Edge> edges;
  edges.reserve(ways.size());
  for (size_t i = 0; i < ways.size();) {
    std::vector<Branch> same;
    Edge edge{ways[i].byte, 0, 0.0};
    for (; i < ways.size() && ways[i].byte == edge.byte; ++i) {
      same.push_back(ways[i].branch);
      edge.probability += ways[i].branch.weight;
    }
    edge.next = choice(std::move(same));
    edges.push_back(edge);
  }
  return intern(edges);
}

AutomatonBuilder::State AutomatonBuilder::pattern(std::string_view pattern, State next) {
  size_t at = pattern.size();
  const State state = alternatives(pattern, at, next);
  TANDEM_CHECK(at == 0, "pattern '{}': '(' is not closed", pattern);
  return state;
}

// Reads right to left, because states are made from their continuations; stops at the '(' that opens the
// group, or at the beginning.
AutomatonBuilder::State AutomatonBuilder::alternatives(std::string_view pattern, size_t& at, State next) {
  std::vector<Branch> branches;
  Branch branch{1.0, next};
  while (at > 0 && pattern[at - 1] != '(') {
    --at;
    if (pattern[at] == ')') {
      branch = {1.0, alternatives(pattern, at, text(branch.before, branch.state))};
      TANDEM_CHECK(at > 0, "pattern '{}': ')' closes nothing", pattern);
      --at;
    } else if (pattern[at] == '|') {
      branches.push_back(branch);
      branch = {1.0, next};
    } else {
      branch.before = pattern.substr(at, branch.before.size() + 1);
    }
  }
  branches.push_back(branch);
  return choice(std::move(branches));
}

// Merging leaves states behind that nothing leads to any more; what is kept stays in order, so that edges
// go on leading to lower numbers.
Automaton AutomatonBuilder::finish(State first) {
  TANDEM_CHECK(first != Automaton::kStart);
  const auto num_states = static_cast<State>(first_edge_.size() - 1);
  std::vector<bool> reached(num_states, false);
  std::vector<State> pending;
  for (const Edge& edge : edges_of(first)) pending.push_back(edge.next);
  while (!pending.empty()) {
    const State state = pending.back();
    pending.pop_back();
    if (state == Automaton::kStart || reached[state]) continue;
    reached[state] = true;
    for (const Edge& edge : edges_of(state)) pending.push_back(edge.next);
  }
  std::vector<State> renamed(num_states, Automaton::kStart);
  State num_kept = 1;
  for (State state = 1; state < num_states; ++state) {
    if (reached[state]) renamed[state] = num_kept++;
  }
  std::vector<uint32_t> first_edge = {0};
  std::vector<Edge> edges;
  const auto keep = [&](State state) {
    for (const Edge& edge : edges_of(state))
      edges.push_back({edge.byte, renamed[edge.next], edge.probability});
    first_edge.push_back(static_cast<uint32_t>(edges.size()));
  };
  keep(first);
  for (State state = 1; state < num_states; ++state) {
    if (reached[state]) keep(state);
  }
  return Automaton(std::move(first_edge), std::move(edges));
}

}  // namespace tandem
