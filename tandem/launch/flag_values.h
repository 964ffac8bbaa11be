// The values of launch's flags that have a form of their own, as torchrun writes them. What is wrong is a
// ConfigError with the flag's name.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// Bits for stdout (1) and stderr (2), of all local ranks or of some.
struct StreamChoice {
  std::optional<int> all;
  std::map<int, int> by_local_rank;

  std::optional<int> of(int local_rank) const;  // null: nothing was said about it
};

StreamChoice parse_streams(std::string_view text, std::string_view flag);       // "3", or "0:3,1:1"
std::set<int> parse_local_ranks(std::string_view text, std::string_view flag);  // "0,2"
std::vector<std::string> parse_words(std::string_view text);  // "apple,orange"; ",," is a comma
std::vector<int> parse_signals(std::string_view text, std::string_view flag);  // "SIGTERM,SIGUSR1"

// "timeout=900,last_call_timeout=30"
struct RendezvousSettings {
  std::optional<double> timeout_s, last_call_s;
  std::vector<std::string> without_meaning;  // what torch's backends know and we have no use for
};
RendezvousSettings parse_rendezvous_settings(std::string_view text, std::string_view flag);

// A template with ${role_name}, ${rank}, ${local_rank} and ${hostname}.
struct PrefixValues {
  std::string role;
  int rank = 0;
  int local_rank = 0;
  std::string host;
};
std::string expand_prefix(std::string_view text, const PrefixValues& values);

}  // namespace tandem
