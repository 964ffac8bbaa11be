#include "tandem/pipeline/log_tail.h"

#include <fmt/format.h>

#include <deque>
#include <fstream>

#include "tandem/config/values.h"

namespace tandem::pipeline {
namespace {

constexpr int64_t kTailBytes = 8192;
constexpr size_t kTailLines = 10, kMostWidth = 300;
constexpr std::string_view kHeader = "== attempt ";

// Without what a terminal would act on. A progress line that was drawn over counts as its last state.
std::string shown(std::string line) {
  while (!line.empty() && line.back() == '\r') line.pop_back();
  const size_t drawn = line.rfind('\r');
  if (drawn != std::string::npos) line.erase(0, drawn + 1);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  if (line.size() > kMostWidth) line.resize(kMostWidth);
  return line;
}

}  // namespace

std::string quoted(const std::vector<std::string>& command) {
  std::string text;
  for (const std::string& word : command) {
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_-+=.,:/@%") == std::string::npos;
    if (!text.empty()) text += ' ';
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (char c : word) {
      if (c == '\'') text += "'\\'";
      text += c;
    }
    text += '\'';
  }
  return text;
}

std::string log_header(int64_t attempt, const std::string& time, const std::vector<std::string>& command) {
  std::string line = quoted(command);
  for (char& c : line) c = c == '\n' ? ' ' : c;
  return fmt::format("{}{}, {}: {}\n", kHeader, attempt, time, line);
}

std::string log_tail(const std::filesystem::path& log) {
  std::ifstream stream(log, std::ios::binary | std::ios::ate);
  if (!stream) return "";
  const int64_t size = stream.tellg();
  stream.seekg(std::max<int64_t>(0, size - kTailBytes));
  std::deque<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(kHeader)) {
      lines.clear();
      continue;
    }
    lines.push_back(shown(std::move(line)));
    if (lines.size() > kTailLines) lines.pop_front();
  }
  std::string text;
  for (const std::string& line : lines) text += "    " + line + "\n";
  return text;
}

}  // namespace tandem::pipeline
