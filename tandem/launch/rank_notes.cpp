#include "tandem/launch/rank_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

namespace tandem {
namespace {

constexpr std::streamsize kMostRead = 1 << 20;  // a stack of calls may be long, but not that long

std::string read_start(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(kMostRead), '\0');
  file.read(text.data(), kMostRead);
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return !path.empty() && std::filesystem::exists(path, error);
}

}  // namespace

RankNotes RankNotes::in(const std::filesystem::path& directory, int rank) {
  const auto name = [&](const char* what) {
    return std::filesystem::absolute(directory) / fmt::format("rank-{}.{}", rank, what);
  };
  return {name("lost_peer"), name("final"), name("interrupted"), name("error.json")};
}

void RankNotes::remove() const {
  std::error_code ignored;
  for (const std::filesystem::path& path : {lost_peer, final_code, interrupted, error})
    std::filesystem::remove(path, ignored);
}

bool RankNotes::has_lost_peer() const { return is_there(lost_peer); }
bool RankNotes::has_final_code() const { return is_there(final_code); }

// {"message": {"message": TEXT, "extraInfo": {...}}}, or {"message": TEXT} of a program that died of a
// signal.
std::string RankNotes::error_message() const {
  nlohmann::json record = nlohmann::json::parse(read_start(error), nullptr, false);
  for (int depth = 0; depth < 2 && record.is_object(); ++depth)
    record = record.value("message", nlohmann::json());
  if (!record.is_string()) return {};
  std::istringstream lines(record.get<std::string>());
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) return line;
  }
  return {};
}

std::optional<RankNotes::Interruption> RankNotes::interruption() const {
  if (!is_there(interrupted)) return std::nullopt;
  std::error_code unknown;
  Interruption found;
  found.time = std::filesystem::last_write_time(interrupted, unknown);
  found.signal = std::atoi(read_start(interrupted).c_str());
  if (found.signal <= 0 || found.signal >= NSIG)
    found.signal = SIGTERM;  // a program that says no more than that
  return found;
}

}  // namespace tandem
