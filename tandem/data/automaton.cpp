#include "tandem/data/automaton.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/base/error.h"

namespace tandem {

Automaton::Automaton(std::vector<uint32_t> first_edge, std::vector<Edge> edges)
    : first_edge_(std::move(first_edge)), edges_(std::move(edges)), upto_(edges_.size()) {
  constexpr double kUnit = 0x1p32;
  for (uint32_t state = 0; state < num_states(); ++state) {
    TANDEM_CHECK(first_edge_[state] < first_edge_[state + 1], "state {} has no way out", state);
    double cumulative = 0.0;
    for (uint32_t e = first_edge_[state]; e < first_edge_[state + 1]; ++e) {
      TANDEM_CHECK(edges_[e].next < num_states());
      TANDEM_CHECK(state == kStart || edges_[e].next == kStart || edges_[e].next < state);
      cumulative += edges_[e].probability;
      upto_[e] = static_cast<uint64_t>(std::llround(cumulative * kUnit));
    }
    TANDEM_CHECK(std::abs(cumulative - 1.0) < 1e-9, "state {} has total probability {}", state, cumulative);
    upto_[first_edge_[state + 1] - 1] = uint64_t{1} << 32;
  }
}

void Automaton::generate(const Rng& rng, std::span<uint8_t> text) const {
  uint32_t state = kStart;
  std::array<uint32_t, 4> draws{};
  uint64_t num_draws = 0;
  for (uint8_t& byte : text) {
    uint32_t edge = first_edge_[state];
    if (first_edge_[state + 1] - edge > 1) {
      if (num_draws % 4 == 0) draws = rng.block(num_draws / 4);
      const uint64_t draw = draws[num_draws++ % 4];
      while (draw >= upto_[edge]) ++edge;
    }
    byte = edges_[edge].byte;
    state = edges_[edge].next;
  }
}

double Automaton::log_probability(std::string_view text, size_t first) const {
  uint32_t state = kStart;
  double sum = 0.0;
  for (size_t t = 0; t < text.size(); ++t) {
    const auto out = edges(state);
    const auto byte = static_cast<uint8_t>(text[t]);
    const auto edge = std::find_if(out.begin(), out.end(), [&](const Edge& e) { return e.byte == byte; });
    if (edge == out.end()) return -std::numeric_limits<double>::infinity();
    if (t >= first) sum += std::log(edge->probability);
    state = edge->next;
  }
  return sum;
}

}  // namespace tandem
