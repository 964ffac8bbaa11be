#include "tandem/launch/flag_values.h"

#include <gtest/gtest.h>

#include <csignal>

#include "tandem/base/error.h"

namespace tandem {
namespace {

TEST(FlagValues, StreamsAreOfAllLocalRanksOrOfSome) {
  EXPECT_EQ(3, parse_streams("3", "--tee").of(7));
  const StreamChoice some = parse_streams("0:3,1:1", "--tee");
  EXPECT_EQ(3, some.of(0));
  EXPECT_EQ(1, some.of(1));
  EXPECT_EQ(std::nullopt, some.of(2));
  for (const char* bad : {"4", "", "0:4", "0:", ":1", "0:1,", "x:1", "0:1,3", "-1:2"})
    EXPECT_THROW(parse_streams(bad, "--tee"), ConfigError) << bad;
}

TEST(FlagValues, LocalRanksAreNumbers) {
  EXPECT_EQ((std::set<int>{0, 2}), parse_local_ranks("2,0", "--local-ranks-filter"));
  for (const char* bad : {"", "a", "1,,2", "-1"})
    EXPECT_THROW(parse_local_ranks(bad, "-f"), ConfigError) << bad;
}

TEST(FlagValues, WordsHaveCommasBetweenThemAndTwoMakeOne) {
  EXPECT_EQ((std::vector<std::string>{"apple", "a,b"}), parse_words("apple,a,,b"));
  EXPECT_EQ(std::vector<std::string>{}, parse_words(""));
}

TEST(FlagValues, SignalsHaveNames) {
  EXPECT_EQ((std::vector<int>{SIGTERM, SIGUSR1}), parse_signals("SIGTERM,USR1", "--signals-to-handle"));
  for (const char* bad : {"", "SIGFOO", "15", "SIGKILL", "SIGTERM,"})
    EXPECT_THROW(parse_signals(bad, "--signals-to-handle"), ConfigError) << bad;
}

TEST(FlagValues, RendezvousSettingsAreThoseThatMeanSomething) {
  const RendezvousSettings settings =
      parse_rendezvous_settings("join_timeout=9,last_call_timeout=1.5,read_timeout=60", "-c");
  EXPECT_EQ(9, settings.timeout_s);
  EXPECT_EQ(1.5, settings.last_call_s);
  EXPECT_EQ(std::vector<std::string>{"read_timeout"}, settings.without_meaning);
  EXPECT_TRUE(parse_rendezvous_settings("", "-c").without_meaning.empty());
  for (const char* bad : {"timeout", "=3", "timeout=soon", "timeout=-1", "timeout=nan"})
    EXPECT_THROW(parse_rendezvous_settings(bad, "-c"), ConfigError) << bad;
}

TEST(FlagValues, APrefixHasTorchrunsMacros) {
  const PrefixValues values{.role = "trainer", .rank = 5, .local_rank = 1, .host = "a"};
  EXPECT_EQ("[trainer1]:", expand_prefix("[${role_name}${local_rank}]:", values));
  EXPECT_EQ("a/5 $x 5", expand_prefix("${hostname}/${rank} $x ${rank}", values));
  EXPECT_EQ("${rank}",
            expand_prefix("${role_name}", {.role = "${rank}", .rank = 0, .local_rank = 0, .host = ""}));
}

}  // namespace
}  // namespace tandem
