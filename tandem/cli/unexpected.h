// What to say of a word on the command line that the chosen command does not know.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace tandem::cli {

// `words` are all that were typed, from which `word` came.
std::string explain_unexpected(const CLI::App& app, const std::string& word, std::span<char* const> words);

}  // namespace tandem::cli
