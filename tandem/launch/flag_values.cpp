#include "tandem/launch/flag_values.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstring>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr int kMostLocalRanks = 4096;

template <typename Number>
std::optional<Number> read_number(std::string_view text, Number least, Number most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most))
    return std::nullopt;
  return value;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts(1);
  for (char letter : text) {
    if (letter == ',') {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

}  // namespace

std::optional<int> StreamChoice::of(int local_rank) const {
  if (const auto found = by_local_rank.find(local_rank); found != by_local_rank.end()) return found->second;
  return all;
}

StreamChoice parse_streams(std::string_view text, std::string_view flag) {
  StreamChoice choice;
  choice.all = read_number(text, 0, 3);
  if (choice.all) return choice;
  for (const std::string& part : split(text)) {
    const size_t colon = part.find(':');
    const std::string_view streams =
        std::string_view(part).substr(colon == std::string::npos ? part.size() : colon + 1);
    const std::optional<int> rank = read_number(std::string_view(part).substr(0, colon), 0, kMostLocalRanks);
    const std::optional<int> bits = read_number(streams, 0, 3);
    if (!rank || !bits)
      throw ConfigError(
          "{}: expected 0 (nothing), 1 (stdout), 2 (stderr) or 3 (both), or LOCAL_RANK:N,..., found '{}'",
          flag, text);
    choice.by_local_rank[*rank] = *bits;
  }
  return choice;
}

std::set<int> parse_local_ranks(std::string_view text, std::string_view flag) {
  std::set<int> ranks;
  for (const std::string& part : split(text)) {
    const std::optional<int> rank = read_number(std::string_view(part), 0, kMostLocalRanks);
    if (!rank)
      throw ConfigError("{}: expected local ranks with commas between them, such as 0,2, found '{}'", flag,
                        text);
    ranks.insert(*rank);
  }
  return ranks;
}

std::vector<std::string> parse_words(std::string_view text) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      words.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      words.back() += ',';
      ++i;
    } else {
      words.emplace_back();
    }
  }
  std::erase(words, "");
  return words;
}

std::vector<int> parse_signals(std::string_view text, std::string_view flag) {
  std::vector<int> signals;
  for (const std::string& part : split(text)) {
    const std::string name = part.starts_with("SIG") ? part.substr(3) : part;
    int found = 0;
    for (int signal = 1; signal < NSIG && found == 0; ++signal) {
      const char* known = ::sigabbrev_np(signal);
      if (known != nullptr && name == known) found = signal;
    }
    constexpr std::array<int, 5> kNever = {SIGKILL, SIGSTOP, SIGCHLD, SIGCONT, SIGWINCH};
    if (found == 0 || std::find(kNever.begin(), kNever.end(), found) != kNever.end())
      throw ConfigError(
          "{}: expected names of signals that can be passed on, such as SIGTERM,SIGUSR1, found '{}'", flag,
          part);
    signals.push_back(found);
  }
  return signals;
}

RendezvousSettings parse_rendezvous_settings(std::string_view text, std::string_view flag) {
  RendezvousSettings settings;
  if (text.empty()) return settings;
  for (const std::string& part : split(text)) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0)
      throw ConfigError("{}: expected KEY=VALUE,KEY=VALUE,..., found '{}'", flag, text);
    const std::string key = part.substr(0, equals);
    std::optional<double>* wanted = key == "timeout" || key == "join_timeout" ? &settings.timeout_s
                                    : key == "last_call_timeout"              ? &settings.last_call_s
                                                                              : nullptr;
    if (wanted == nullptr) {
      settings.without_meaning.push_back(key);
      continue;
    }
    *wanted = read_number(std::string_view(part).substr(equals + 1), 0.0, 1e9);
    if (!*wanted)
      throw ConfigError("{}: {}: expected seconds, found '{}'", flag, key, part.substr(equals + 1));
  }
  return settings;
}

std::string expand_prefix(std::string_view text, const PrefixValues& values) {
  const std::pair<std::string_view, std::string> macros[] = {
      {"${role_name}", values.role},
      {"${rank}", std::to_string(values.rank)},
      {"${local_rank}", std::to_string(values.local_rank)},
      {"${hostname}", values.host}};
  std::string expanded;
  while (!text.empty()) {
    const auto found = std::find_if(std::begin(macros), std::end(macros),
                                    [&](const auto& macro) { return text.starts_with(macro.first); });
    expanded += found != std::end(macros) ? found->second : std::string(1, text.front());
    text.remove_prefix(found != std::end(macros) ? found->first.size() : 1);
  }
  return expanded;
}

}  // namespace tandem
