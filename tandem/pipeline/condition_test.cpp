#include "tandem/pipeline/condition.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"

namespace tandem::pipeline {
namespace {

bool holds(const std::string& text) {
  return parse_condition(text, "p").holds([](const Operand& operand) {
    if (operand.step.empty()) return operand.number;
    return operand.metric == "loss" ? 2.0 : 5.0;
  });
}

TEST(Condition, ComparesMetricsAndNumbers) {
  EXPECT_TRUE(holds("a.loss < 2.1"));
  EXPECT_FALSE(holds("a.loss < 2"));
  EXPECT_TRUE(holds("a.loss<=2e0"));
  EXPECT_TRUE(holds("a.x.y >a.loss"));
  EXPECT_TRUE(holds("a.loss == 2"));
  EXPECT_FALSE(holds("a.loss != 2"));
  EXPECT_TRUE(holds("-3 < a.loss"));
}

TEST(Condition, BindsAndCloserThanOr) {
  EXPECT_TRUE(holds("a.loss < 9 or a.loss < 1 and a.loss < 1"));
  EXPECT_TRUE(holds("a.loss < 1 and a.loss < 1 or a.loss < 9"));
  EXPECT_FALSE(holds("a.loss < 1 or a.loss < 9 and a.loss > 9"));
}

TEST(Condition, KnowsItsSteps) {
  EXPECT_EQ(parse_condition("b.x < 1 and a.y > b.z", "p").steps(), (std::vector<std::string>{"b", "a"}));
}

TEST(Condition, RefusesWhatIsNone) {
  for (const char* text : {"", "a.loss", "a.loss <", "a.loss < b", "a.loss ~ 2", "a.loss < 2 then",
                           "a.loss < 2 and", ".x < 1", "a. < 1"}) {
    const std::string message = message_of<ConfigError>([&] { parse_condition(text, "p.yaml:4: s.when"); });
    EXPECT_TRUE(message.starts_with("p.yaml:4: s.when: expected comparisons")) << text << ": " << message;
  }
}

}  // namespace
}  // namespace tandem::pipeline
