#include "tandem/metrics/kept_rows.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/metrics/append_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct Row {
  std::string_view line;
  int64_t step;
};

struct Reading {
  std::string_view header;  // empty where there is none
  std::vector<Row> kept;    // of steps up to the last one wanted, in order
  size_t bytes = 0;         // from the file's beginning to the end of the last row that is kept
  int64_t lost = 0;         // lines before that end that are no rows, or out of order
  int64_t unread = 0;       // lines after it that are no rows
};

struct Line {
  std::string_view text;
  std::optional<int64_t> step;
  size_t end;
};

// A step that does not follow the one before is believed unless the next row takes up the order again.
bool follows(int64_t step, int64_t before, std::optional<int64_t> next) {
  if (step == before + 1) return true;
  return step > before && !(next && *next > before && *next <= step);
}

Reading read_rows(std::string_view text, const RowFormat& format, int64_t last_step) {
  Reading reading;
  std::vector<Line> lines;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1) {
    const std::string_view line = text.substr(begin, end - begin);  // what has no end was half written
    if (begin == 0 && format.is_header && format.is_header(line)) {
      reading.header = line;
      reading.bytes = end + 1;
    } else {
      lines.push_back({line, format.step_of(line), end + 1});
    }
  }
  int64_t later = 0;  // rows of later steps, which belong behind all others
  for (size_t i = 0; i < lines.size(); ++i) {
    const Line& line = lines[i];
    if (line.step && *line.step > last_step) {
      ++later;
      continue;
    }
    size_t next = i + 1;
    while (next < lines.size() && !lines[next].step) ++next;
    const int64_t before = reading.kept.empty() ? 0 : reading.kept.back().step;
    if (!line.step || !follows(*line.step, before, next < lines.size() ? lines[next].step : std::nullopt)) {
      ++reading.unread;
      continue;
    }
    reading.lost += std::exchange(reading.unread, 0) + std::exchange(later, 0);
    reading.bytes = line.end;
    reading.kept.push_back({line.text, *line.step});
  }
  return reading;
}

fs::path kept_beside(const fs::path& path) {
  fs::path copy;
  for (int number = 1; fs::exists(copy = fs::path(fmt::format("{}.damaged-{}", path.string(), number)));)
    ++number;
  std::error_code error;
  fs::copy_file(path, copy, error);
  if (error) throw IoError("{}: cannot keep a copy of {}: {}", copy.string(), path.string(), error.message());
  return copy;
}

// Steps between the first row and `last_step` that have none: "7", "7 to 9, 12 and more".
std::string missing_steps(const std::vector<Row>& kept, int64_t last_step) {
  std::vector<std::string> ranges;
  int64_t expected = kept.empty() ? 1 : kept.front().step;
  const auto add_until = [&](int64_t step) {
    if (step - 1 == expected) ranges.push_back(fmt::format("{}", expected));
    if (step - 1 > expected) ranges.push_back(fmt::format("{} to {}", expected, step - 1));
    expected = step + 1;
  };
  for (const Row& row : kept) add_until(row.step);
  add_until(last_step + 1);
  std::string text;
  for (size_t i = 0; i < ranges.size() && i < 4; ++i)
    text += (i == 0 ? "" : ", ") + (i == 3 && ranges.size() > 4 ? "and others" : ranges[i]);
  return text;
}

}  // namespace

std::string keep_rows(const fs::path& path, const RowFormat& format, int64_t last_step, bool expected) {
  if (last_step == 0) {
    truncate_lines(path, [](std::string_view) { return false; });
    return "";
  }
  if (!fs::exists(path)) {
    return expected ? fmt::format("{}: is missing; it goes on after step {}", path.string(), last_step) : "";
  }
  require_regular(path);
  std::optional<MappedFile> file;
  if (fs::file_size(path) > 0) file.emplace(path);
  const auto bytes = file ? file->bytes() : std::span<const std::byte>{};
  const Reading reading =
      read_rows({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, format, last_step);
  const std::string missing = missing_steps(reading.kept, last_step);
  const bool headless = format.is_header && reading.header.empty();
  const bool damaged =
      reading.lost > 0 || (reading.unread > 0 && !missing.empty()) || (headless && !reading.kept.empty());
  if (!damaged) {
    file.reset();
    std::error_code error;
    if (bytes.size() != reading.bytes) fs::resize_file(path, reading.bytes, error);
    if (error) throw IoError("{}: cannot truncate: {}", path.string(), error.message());
    return missing.empty() || !expected ? ""
                                        : fmt::format("{}: has no rows of steps {}", path.string(), missing);
  }
  const fs::path copy = kept_beside(path);
  std::string text(headless ? format.header() : std::string(reading.header));
  if (!text.empty()) text += '\n';
  for (const Row& row : reading.kept) {
    text += row.line;
    text += '\n';
  }
  write_atomically(path, text);
  return fmt::format("{}: was damaged{}; what can be read of it is kept, and the file as it was is {}",
                     path.string(), missing.empty() ? "" : fmt::format(" and lacks steps {}", missing),
                     copy.filename().string());
}

}  // namespace tandem
