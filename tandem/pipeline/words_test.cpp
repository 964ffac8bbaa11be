#include "tandem/pipeline/words.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"

namespace tandem::pipeline {
namespace {

using Words = std::vector<std::string>;
const std::string kHostile = "a 'b' \"c\" $(touch hurt) `touch hurt`; touch hurt\n${HOME} \\ * ~";

Lookup values(std::map<std::string, Words> known) {
  return [known](std::string_view name) { return known.at(std::string(name)); };
}

TEST(Words, AreSplitAsAShellDoes) {
  EXPECT_EQ(split_words("tandem  train\ta.yaml", "x"), (Words{"tandem", "train", "a.yaml"}));
  EXPECT_EQ(split_words(R"(a 'b  c' "d \" e" f\ g '' h'i'"j")", "x"),
            (Words{"a", "b  c", "d \" e", "f g", "", "hij"}));
  EXPECT_EQ(split_words(R"("a\n$x" '$(b)')", "x"), (Words{"a\\n$x", "$(b)"}));
  EXPECT_EQ(split_words("  ", "x"), Words{});
  EXPECT_EQ(message_of<ConfigError>([] { split_words("a 'b", "p.yaml:3: t"); }),
            "p.yaml:3: t: a quote (') is not closed; close it");
}

TEST(Words, HoldPlaceholdersAndOtherBraces) {
  EXPECT_EQ(placeholders("{in} x={a.out} {{lr}} {print $1} {} {a b} {1}"), (Words{"in", "a.out"}));
  EXPECT_EQ(placeholders("${HOME} {x}", true), (Words{"x"}));
  EXPECT_EQ(fill_text("{{lr}}={lr} [{a: {b: 1}}]", values({{"lr", {"3"}}}), "x"), "{lr}=3 [{a: {b: 1}}]");
}

TEST(Words, TakeValuesAsTheyAre) {
  EXPECT_EQ(fill_words({"run", "{x}", "k={x}"}, values({{"x", {kHostile}}}), "p"),
            (Words{"run", kHostile, "k=" + kHostile}));
}

TEST(Words, OfSeveralValuesStandAlone) {
  const Lookup lookup = values({{"in", {"a b", "c"}}, {"none", {}}});
  EXPECT_EQ(fill_words({"cat", "{in}", "{none}"}, lookup, "p"), (Words{"cat", "a b", "c"}));
  const std::string message =
      message_of<ConfigError>([&] { fill_words({"--in={in}"}, lookup, "p.yaml:2: s"); });
  EXPECT_NE(message.find("p.yaml:2: s: {in} stands for 2 values"), std::string::npos) << message;
}

// What a shell prints for a script with the hostile value in every kind of quotes.
TEST(Words, NeverReachTheShellsParser) {
  const Script script = fill_script(R"(printf '%s|' {x} "{x}" '{x}' "a{x}b" {in} "${tandem_own}")",
                                    values({{"x", {kHostile}}, {"in", {"1", "2 3"}}}));
  for (const std::string& variable : script.variables) {
    const size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
  ::setenv("tandem_own", "own", 1);
  ::setenv("tandem_script", script.text.c_str(), 1);
  FILE* pipe = ::popen("cd / && exec sh -c \"$tandem_script\"", "r");
  ASSERT_NE(pipe, nullptr);
  std::string printed;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) printed += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_EQ(printed, kHostile + "|" + kHostile + "|" + kHostile + "|a" + kHostile + "b|1|2 3|own|");
}

}  // namespace
}  // namespace tandem::pipeline
