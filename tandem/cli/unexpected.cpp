#include "tandem/cli/unexpected.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "tandem/base/nearest.h"
#include "tandem/config/keys.h"
#include "tandem/config/values.h"

namespace tandem::cli {
namespace {

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string_view word_after(std::string_view word, std::span<char* const> words) {
  const auto found = std::find(words.begin(), words.end(), word);
  return found == words.end() || found + 1 == words.end() ? std::string_view() : *(found + 1);
}

// `--lr 3e-4` is `--set train.lr=3e-4`; empty where no key is called so.
std::string as_set(std::string_view flag, std::span<char* const> words) {
  const size_t equals = flag.find('=');
  std::string name(flag.substr(0, equals));
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  std::replace(name.begin(), name.end(), '-', '_');
  const std::string_view next = word_after(flag, words);
  const bool has_next = !next.empty() && !next.starts_with("-") && !next.ends_with(".yaml");
  const std::string_view value = equals != std::string_view::npos ? flag.substr(equals + 1)
                                 : has_next                       ? next
                                                                  : "VALUE";
  std::vector<std::string> sets;
  for (const std::string_view key : keys_named(name))
    sets.push_back(fmt::format("--set {}={}", key, shortened(value)));
  return fmt::format("{}", fmt::join(sets, " or "));
}

// `train.lr=3e-4` without the flag before it.
std::string as_assignment(const std::string& word) {
  const std::string_view key = std::string_view(word).substr(0, word.find('='));
  return key.size() < word.size() && find_key(key) != nullptr
             ? fmt::format("did you mean --set {}?", shortened(word))
             : "";
}

}  // namespace

std::string explain_unexpected(const CLI::App& app, const std::string& word, std::span<char* const> words) {
  const CLI::App* command = &app;
  for (const CLI::App* chosen : app.get_subcommands()) command = chosen;
  const std::string program = app.get_name();
  const std::string where = command == &app ? program : program + " " + command->get_name();
  const auto message = [&](const std::string& advice) {
    return fmt::format("{}: unexpected {}{}", where, in_quotes(word),
                       advice.empty() ? fmt::format("; see {} --help", where)
                                      : fmt::format("; {} See {} --help", advice, where));
  };
  const std::vector<std::string> flags = flags_of(*command);
  const bool has_set = std::find(flags.begin(), flags.end(), "--set") != flags.end();
  if (command == &app && !word.starts_with("-")) {
    if (word.ends_with(".yaml") || word.ends_with(".yml"))
      return message(fmt::format("a command comes first: {} train {}.", program, shortened(word)));
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(sub->get_name());
    const std::vector<std::string_view> views(names.begin(), names.end());
    const auto meant = likely(word, views);
    return message(meant ? fmt::format("did you mean '{}'?", *meant)
                         : fmt::format("expected one of {}.", fmt::join(names, ", ")));
  }
  if (!word.starts_with("-")) return message(has_set ? as_assignment(word) : "");
  const std::string flag = word.substr(0, word.find('='));
  const std::vector<std::string_view> views(flags.begin(), flags.end());
  const auto meant = likely(flag, views);
  const std::string set = has_set ? as_set(word, words) : "";
  // A key of just that name is surer than a flag that is a slip away.
  if (!set.empty() && (!meant || slip(flag, *meant) > 0))
    return message(fmt::format("a config's key is set with {}.", set));
  return message(meant ? fmt::format("did you mean '{}'?", *meant) : "");
}

}  // namespace tandem::cli
