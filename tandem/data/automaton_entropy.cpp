// Automaton::mean_entropy, by propagating the exact distribution of states over the bytes of a window.
// For entropy the bytes themselves do not matter, nor do stretches without a choice. States that are alike
// but for those form one lump, so that tens of thousands of states become a few hundred lumps.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <unordered_map>

#include "tandem/base/error.h"
#include "tandem/data/automaton.h"

namespace tandem {
namespace {

struct Jump {
  uint32_t lump;
  uint32_t length;  // bytes emitted on the way, the chosen one included
  double probability;
};

struct Lump {
  double entropy;
  std::vector<Jump> jumps;
};

// Probabilities that differ by rounding alone must compare equal.
int64_t rounded(double x) { return std::llround(x * 0x1p40); }

uint64_t hash_of(const Lump& lump) {
  uint64_t hash = mix_bits(static_cast<uint64_t>(rounded(lump.entropy)));
  for (const Jump& jump : lump.jumps) {
    hash = mix_bits(hash ^ (uint64_t{jump.lump} << 32 | jump.length));
    hash = mix_bits(hash ^ static_cast<uint64_t>(rounded(jump.probability)));
  }
  return hash;
}

bool alike(const Lump& a, const Lump& b) {
  return rounded(a.entropy) == rounded(b.entropy) &&
         std::equal(a.jumps.begin(), a.jumps.end(), b.jumps.begin(), b.jumps.end(),
                    [](const Jump& x, const Jump& y) {
                      return x.lump == y.lump && x.length == y.length &&
                             rounded(x.probability) == rounded(y.probability);
                    });
}

struct Hop {
  uint32_t lump, length;  // from a state: the first lump with a choice, and the bytes on the way there
};

Lump describe(std::span<const Automaton::Edge> edges, std::span<const Hop> hops) {
  Lump lump{0.0, {}};
  for (const Automaton::Edge& edge : edges) {
    lump.entropy -= edge.probability * std::log(edge.probability);
    lump.jumps.push_back({hops[edge.next].lump, hops[edge.next].length + 1, edge.probability});
  }
  std::sort(lump.jumps.begin(), lump.jumps.end(), [](const Jump& a, const Jump& b) {
    return std::tie(a.lump, a.length, a.probability) < std::tie(b.lump, b.length, b.probability);
  });
  size_t kept = 0;
  for (const Jump& jump : lump.jumps) {
    if (kept > 0 && lump.jumps[kept - 1].lump == jump.lump && lump.jumps[kept - 1].length == jump.length) {
      lump.jumps[kept - 1].probability += jump.probability;
    } else {
      lump.jumps[kept++] = jump;
    }
  }
  lump.jumps.resize(kept);
  return lump;
}

std::vector<Lump> make_lumps(const Automaton& automaton) {
  std::vector<Lump> lumps(1);  // the start's, known last because every cycle passes it
  std::vector<Hop> hops(automaton.num_states(), Hop{0, 0});
  std::unordered_multimap<uint64_t, uint32_t> known;
  for (uint32_t state = 1; state < automaton.num_states(); ++state) {
    const auto edges = automaton.edges(state);
    if (edges.size() == 1) {
      hops[state] = {hops[edges[0].next].lump, hops[edges[0].next].length + 1};
      continue;
    }
    Lump lump = describe(edges, hops);
    const uint64_t hash = hash_of(lump);
    const auto [begin, end] = known.equal_range(hash);
    const auto same =
        std::find_if(begin, end, [&](const auto& entry) { return alike(lumps[entry.second], lump); });
    if (same != end) {
      hops[state] = {same->second, 0};
      continue;
    }
    hops[state] = {static_cast<uint32_t>(lumps.size()), 0};
    known.emplace(hash, hops[state].lump);
    lumps.push_back(std::move(lump));
  }
  lumps[0] = describe(automaton.edges(Automaton::kStart), hops);
  return lumps;
}

}  // namespace

double Automaton::mean_entropy(int64_t num_targets, bool starts) const {
  TANDEM_CHECK(num_targets > 0);
  const std::vector<Lump> lumps = make_lumps(*this);
  uint32_t longest = 0;
  for (const Lump& lump : lumps) {
    for (const Jump& jump : lump.jumps) longest = std::max(longest, jump.length);
  }
  // mass[t % size][lump]: the probability of standing at the lump when byte t is about to be emitted.
  std::vector<std::vector<double>> mass(longest + 1, std::vector<double>(lumps.size(), 0.0));
  mass[0][0] = 1.0;
  double sum = 0.0, left_out = 0.0;
  for (int64_t t = 0; t <= num_targets; ++t) {
    std::vector<double>& now = mass[static_cast<size_t>(t) % mass.size()];
    for (size_t i = 0; i < lumps.size(); ++i) {
      if (now[i] == 0.0) continue;
      if (t > 0 && (i > 0 || starts)) sum += now[i] * lumps[i].entropy;
      if (t > 0 && i == 0 && !starts) left_out += now[i];
      for (const Jump& jump : lumps[i].jumps) {
        mass[(static_cast<size_t>(t) + jump.length) % mass.size()][jump.lump] += now[i] * jump.probability;
      }
      now[i] = 0.0;
    }
  }
  return sum / (static_cast<double>(num_targets) - left_out);
}

}  // namespace tandem
