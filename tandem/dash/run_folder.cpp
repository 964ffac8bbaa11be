#include "tandem/dash/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"
#include "tandem/base/json_text.h"

namespace tandem::dash {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostObject = 1 << 20;
constexpr int64_t kMostConfig = 1 << 20;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Json parsed(const std::string& text) {
  try {
    check_json_depth(text, "");
    return Json::parse(text, nullptr, /*allow_exceptions=*/false);
  } catch (const DataError&) {
    return Json::value_t::discarded;
  }
}

std::string read_at(const fs::path& path, int64_t most, bool from_end) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat entry {};
  if (fd.get() < 0 || ::fstat(fd.get(), &entry) != 0 || !S_ISREG(entry.st_mode)) return "";
  if (!from_end && entry.st_size > most) return "";
  const int64_t begin = std::max<int64_t>(0, entry.st_size - most);
  std::string text(static_cast<size_t>(entry.st_size - begin), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t n =
        ::pread(fd.get(), text.data() + have, text.size() - have, begin + static_cast<int64_t>(have));
    if (n <= 0) break;
    have += static_cast<size_t>(n);
  }
  text.resize(have);
  if (begin > 0) text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
  return text;
}

}  // namespace

bool RunFolder::is_run(const fs::path& path) {
  std::error_code ignored;
  const bool has_rows = fs::is_regular_file(path / "metrics.jsonl", ignored);
  return has_rows || (fs::is_regular_file(path / "events.jsonl", ignored) &&
                      fs::is_regular_file(path / "config.yaml", ignored));
}

std::optional<fs::path> RunFolder::file(const std::string& name) const {
  std::error_code error;
  const fs::path place = fs::canonical(path_ / name, error);
  if (error) return std::nullopt;
  const fs::path home = fs::canonical(path_, error);
  if (error || !fs::is_regular_file(place, error)) return std::nullopt;
  const auto [rest, _] = std::mismatch(home.begin(), home.end(), place.begin(), place.end());
  return rest == home.end() ? std::optional(place) : std::nullopt;
}

std::string RunFolder::text(const std::string& name, int64_t most) const {
  const auto place = file(name);
  return place ? read_at(*place, most, false) : "";
}

std::string RunFolder::tail(const std::string& name, int64_t bytes) const {
  const auto place = file(name);
  return place ? read_at(*place, bytes, true) : "";
}

Json RunFolder::object(const std::string& name) const {
  const Json json = parsed(text(name, kMostObject));
  return json.is_object() ? json : Json();
}

std::vector<Json> RunFolder::events(size_t most) const {
  std::vector<Json> events;
  for (const std::string& line : lines_of(tail("events.jsonl", 2 << 20))) {
    Json event = parsed(line);
    if (event.is_object() && event.contains("type") && event["type"].is_string())
      events.push_back(std::move(event));
  }
  if (events.size() > most) events.erase(events.begin(), events.end() - static_cast<std::ptrdiff_t>(most));
  return events;
}

// The file is the program's own (config/print.h): sections, and keys within them.
std::vector<std::pair<std::string, std::string>> RunFolder::config() const {
  std::vector<std::pair<std::string, std::string>> rows;
  std::string section;
  for (const std::string& line : lines_of(text("config.yaml", kMostConfig))) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos || line[begin] == '#') continue;
    const size_t colon = line.find(": ", begin);
    if (colon == std::string::npos) {
      if (line.ends_with(':') && begin == 0)
        section = line.substr(0, line.size() - 1) + ".";
      else if (!rows.empty())
        rows.back().second += " " + line.substr(begin);  // a list, over several lines
      continue;
    }
    if (begin == 0) section.clear();
    rows.emplace_back(section + line.substr(begin, colon - begin), line.substr(colon + 2));
  }
  return rows;
}

std::vector<std::string> RunFolder::config_history() const {
  std::vector<std::string> history;
  for (const std::string& line : lines_of(text("config.yaml", kMostConfig))) {
    if (!line.starts_with("# ")) break;
    history.push_back(line.substr(2));
  }
  return history;
}

}  // namespace tandem::dash
