#include "tandem/data/automaton.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "tandem/base/error.h"
#include "tandem/data/automaton_builder.h"

namespace tandem {
namespace {

std::string generate(const Automaton& automaton, uint64_t stream, size_t size) {
  std::string text(size, '\0');
  automaton.generate(Rng(7, stream), {reinterpret_cast<uint8_t*>(text.data()), size});
  return text;
}

Automaton from_pattern(std::string_view pattern) {
  AutomatonBuilder builder;
  return builder.finish(builder.pattern(pattern, Automaton::kStart));
}

// The definition, without lumps or jumps: one byte at a time over all states.
double plain_expected_loss(const Automaton& automaton, int64_t num_targets) {
  std::vector<double> mass(automaton.num_states(), 0.0);
  mass[Automaton::kStart] = 1.0;
  double sum = 0.0;
  for (int64_t t = 0; t <= num_targets; ++t) {
    std::vector<double> next(mass.size(), 0.0);
    for (uint32_t state = 0; state < automaton.num_states(); ++state) {
      for (const Automaton::Edge& edge : automaton.edges(state)) {
        next[edge.next] += mass[state] * edge.probability;
        if (t > 0) sum -= mass[state] * edge.probability * std::log(edge.probability);
      }
    }
    mass = std::move(next);
  }
  return sum / static_cast<double>(num_targets);
}

TEST(Automaton, GivesEveryTextOfAPatternItsProbability) {
  const Automaton automaton = from_pattern("a (red|blue|(light|dark) green) ball.");
  EXPECT_NEAR(automaton.log_probability("a red ball."), -std::log(3.0), 1e-12);
  EXPECT_NEAR(automaton.log_probability("a dark green ball."), -std::log(6.0), 1e-12);
  EXPECT_NEAR(automaton.log_probability("a red ball.a bl"), -2.0 * std::log(3.0), 1e-12);
  EXPECT_EQ(automaton.log_probability("a pink ball."), -INFINITY);
}

TEST(Automaton, MergesAlternativesThatBeginAlikeWithTheirWeights) {
  // "car" is a prefix of "carts", and two ways of reading "ca" lead on: still one state after each byte.
  const Automaton automaton = from_pattern("(car|carts|cat|cat) x");
  EXPECT_NEAR(automaton.log_probability("c"), 0.0, 1e-12);
  EXPECT_NEAR(automaton.log_probability("car x"), -std::log(4.0), 1e-12);
  EXPECT_NEAR(automaton.log_probability("carts x"), -std::log(4.0), 1e-12);
  EXPECT_NEAR(automaton.log_probability("cat x"), -std::log(2.0), 1e-12);
  for (uint32_t state = 0; state < automaton.num_states(); ++state) {
    const auto edges = automaton.edges(state);
    for (size_t i = 1; i < edges.size(); ++i) EXPECT_LT(edges[i - 1].byte, edges[i].byte);
  }
}

TEST(Automaton, MakesEqualStatesOnce) {
  // Three words that end in "at." after different letters share "at.", "t." and ".".
  EXPECT_EQ(from_pattern("(bat|cat|rat).").num_states(), 4u);
}

TEST(Automaton, GeneratesByItsProbabilities) {
  const Automaton automaton = from_pattern("(a|a|b|(c|d))");
  std::map<char, int> counts;
  constexpr int kDraws = 40000;
  for (const char c : generate(automaton, 1, kDraws)) ++counts[c];
  for (const auto& [letter, expected] :
       std::map<char, double>{{'a', 0.5}, {'b', 0.25}, {'c', 0.125}, {'d', 0.125}}) {
    const double sigma = std::sqrt(expected * (1.0 - expected) * kDraws);
    EXPECT_NEAR(counts[letter], expected * kDraws, 5.0 * sigma) << letter;
  }
}

TEST(Automaton, GeneratesAPureFunctionOfTheStream) {
  const Automaton automaton = from_pattern("(a|b|c)(d|e)");
  EXPECT_EQ(generate(automaton, 1, 100), generate(automaton, 1, 100));
  EXPECT_NE(generate(automaton, 1, 100), generate(automaton, 2, 100));
  EXPECT_EQ(generate(automaton, 1, 100).substr(0, 60), generate(automaton, 1, 60));
}

TEST(Automaton, ExpectedLossIsTheEntropyOfTheChoices) {
  // One choice of two every second byte; of four targets, the bytes 2 and 4 are choices, byte 0 is given.
  const Automaton automaton = from_pattern("(a|b)c");
  EXPECT_NEAR(automaton.expected_loss(4), 2.0 * std::log(2.0) / 4.0, 1e-12);
  EXPECT_NEAR(automaton.expected_loss(1), 0.0, 1e-12);
}

TEST(Automaton, ExpectedLossAgreesWithPropagatingEveryState) {
  for (const char* pattern :
       {"(a|b)", "(ab|cd|(e|f)gh)(|x|yy)z", "(Tom|Ann|Elisabeth) (ran|sat) to (Tom|the (old|new) hut). ",
        "once upon a time(| (two|three) times)."}) {
    const Automaton automaton = from_pattern(pattern);
    for (const int64_t targets : {1, 2, 7, 64, 300}) {
      EXPECT_NEAR(automaton.expected_loss(targets), plain_expected_loss(automaton, targets), 1e-10)
          << pattern;
    }
  }
}

TEST(AutomatonBuilder, RefusesUnbalancedPatterns) {
  AutomatonBuilder builder;
  EXPECT_THROW(builder.pattern("a(b|c", Automaton::kStart), BugError);
  EXPECT_THROW(builder.pattern("ab|c)", Automaton::kStart), BugError);
}

}  // namespace
}  // namespace tandem
