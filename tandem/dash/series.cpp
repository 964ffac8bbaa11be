#include "tandem/dash/series.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>

#include "tandem/base/descriptor.h"

namespace tandem::dash {
namespace {

constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kMostColumns = 64;
constexpr size_t kTail = 64;
constexpr size_t kChunk = 4 << 20;

// "2026-01-31T23:59:59.123Z"; not-a-number where it is none.
double seconds_of(std::string_view text) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd";
  if (text.size() < kForm.size()) return kNothing;
  for (size_t i = 0; i < kForm.size(); ++i) {
    if (kForm[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != kForm[i]) return kNothing;
  }
  const auto number = [&](size_t at, size_t size) {
    int value = 0;
    for (size_t i = at; i < at + size; ++i) value = value * 10 + (text[i] - '0');
    return value;
  };
  const auto date = std::chrono::year(number(0, 4)) / number(5, 2) / number(8, 2);
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  double part = 0;
  double unit = 0.1;
  for (size_t i = kForm.size() + 1; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i, unit /= 10)
    part += unit * (text[i] - '0');
  return static_cast<double>(days) * 86400 + number(11, 2) * 3600 + number(14, 2) * 60 + number(17, 2) + part;
}

// Reads from the front of what is left.
struct Scanner {
  const char* at;
  const char* end;

  bool take(char c) {
    while (at != end && *at == ' ') ++at;
    if (at == end || *at != c) return false;
    ++at;
    return true;
  }
  bool take_text(std::string_view& text) {  // without escapes, which no row of ours has
    if (!take('"')) return false;
    const char* begin = at;
    while (at != end && *at != '"' && *at != '\\') ++at;
    if (at == end || *at != '"') return false;
    text = {begin, static_cast<size_t>(at - begin)};
    ++at;
    return true;
  }
  bool take_value(double& value) {
    while (at != end && *at == ' ') ++at;
    if (at == end) return false;
    if (*at == '"') {
      std::string_view text;
      if (!take_text(text)) return false;
      value = seconds_of(text);
      return true;
    }
    if (std::string_view(at, static_cast<size_t>(end - at)).starts_with("null")) {
      at += 4;
      value = kNothing;
      return true;
    }
    const auto [rest, error] = std::from_chars(at, end, value);
    if (error == std::errc::result_out_of_range)
      value = kNothing;
    else if (error != std::errc())
      return false;
    at = rest;
    return true;
  }
};

template <typename Visit>
bool scan_row(std::string_view line, Visit&& visit) {
  Scanner scanner{line.data(), line.data() + line.size()};
  if (!scanner.take('{')) return false;
  do {
    std::string_view name;
    double value = 0;
    if (!scanner.take_text(name) || !scanner.take(':') || !scanner.take_value(value)) return false;
    visit(name, value);
  } while (scanner.take(','));
  return scanner.take('}');
}

}  // namespace

bool read_row(std::string_view line, const std::function<void(std::string_view, double)>& visit) {
  return scan_row(line, visit);
}

void Series::clear() { *this = Series(file_); }

bool Series::is_same_file(int fd) const {
  struct stat now {};
  if (::fstat(fd, &now) != 0 || now.st_size < position_) return false;
  if (position_ > 0 && now.st_ino != inode_) return false;
  std::string tail(tail_.size(), '\0');
  const ssize_t n = ::pread(fd, tail.data(), tail.size(), position_ - static_cast<int64_t>(tail.size()));
  return n == static_cast<ssize_t>(tail.size()) && tail == tail_;
}

Series::Change Series::update() {
  // Never waits: a FIFO of that name is no regular file.
  const Descriptor fd(::open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat now {};
  const bool regular = fd.get() >= 0 && ::fstat(fd.get(), &now) == 0 && S_ISREG(now.st_mode);
  Change change = Change::None;
  if (position_ > 0 && (!regular || !is_same_file(fd.get()))) {
    clear();
    change = Change::Restarted;
  }
  if (!regular) return change;
  inode_ = now.st_ino;
  std::string text;
  while (true) {
    const size_t had = text.size();
    text.resize(had + kChunk);
    const ssize_t n = ::pread(fd.get(), text.data() + had, kChunk, position_ + static_cast<int64_t>(had));
    text.resize(had + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    const size_t end = text.rfind('\n');
    if (end != std::string::npos) {
      if (change == Change::None) change = Change::Grew;
      read_rows(std::string_view(text).substr(0, end + 1));
      position_ += static_cast<int64_t>(end + 1);
      const std::string before =
          tail_ + text.substr(end + 1 > kTail ? end + 1 - kTail : 0, std::min(end + 1, kTail));
      tail_ = before.substr(before.size() > kTail ? before.size() - kTail : 0);
      text.erase(0, end + 1);
    }
    if (n < static_cast<ssize_t>(kChunk) || text.size() > kChunk) return change;
  }
}

void Series::read_rows(std::string_view text) {
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1) {
    const size_t row = steps_.size();
    steps_.push_back(kNothing);
    counts_.push_back(kNothing);
    times_.push_back(kNothing);
    const bool good = scan_row(text.substr(begin, end - begin),
                               [&](std::string_view name, double value) { put(name, value, row); });
    // A line that is no row, or not in order, is none.
    if (good && std::isfinite(steps_[row]) && (row == 0 || steps_[row] > steps_[row - 1])) continue;
    steps_.pop_back();
    counts_.pop_back();
    times_.pop_back();
    for (Column& column : columns_) column.values.resize(std::min(column.values.size(), row));
  }
}

void Series::put(std::string_view name, double value, size_t row) {
  if (name == "step")
    steps_[row] = value;
  else if (name == "tokens" || name == "samples")
    counts_[row] = value;
  else if (name == "time")
    times_[row] = value;
  else {
    if (next_ >= columns_.size() || columns_[next_].name != name) {
      next_ = 0;
      while (next_ < columns_.size() && columns_[next_].name != name) ++next_;
      if (next_ == columns_.size()) {
        if (next_ == kMostColumns) return;
        columns_.push_back({std::string(name), {}});
      }
    }
    std::vector<float>& values = columns_[next_].values;
    values.resize(row, kNothing);
    values.push_back(static_cast<float>(value));
    ++next_;
  }
}

std::vector<std::string> Series::names() const {
  std::vector<std::string> names;
  for (const Column& column : columns_) names.push_back(column.name);
  return names;
}

std::span<const float> Series::column(std::string_view name) const {
  for (const Column& column : columns_) {
    if (column.name == name) return column.values;
  }
  return {};
}

size_t Series::memory_bytes() const {
  size_t bytes = 8 * (steps_.capacity() + counts_.capacity() + times_.capacity());
  for (const Column& column : columns_) bytes += 4 * column.values.capacity();
  return bytes;
}

std::vector<uint32_t> downsample(std::span<const float> values, size_t begin, size_t end, size_t points) {
  end = std::min(end, values.size());
  std::vector<uint32_t> rows;
  for (size_t i = begin; i < end; ++i) {
    if (std::isfinite(values[i])) rows.push_back(static_cast<uint32_t>(i));
  }
  if (rows.size() <= std::max<size_t>(points, 4)) return rows;
  const size_t stretches = std::max<size_t>(points, 4) / 2;
  std::vector<uint32_t> kept{rows.front()};
  const auto keep = [&](uint32_t row) {
    if (row > kept.back()) kept.push_back(row);
  };
  for (size_t s = 0; s < stretches; ++s) {
    const auto first = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() * s / stretches);
    const auto last = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() * (s + 1) / stretches);
    const auto [least, most] =
        std::minmax_element(first, last, [&](uint32_t a, uint32_t b) { return values[a] < values[b]; });
    keep(std::min(*least, *most));
    keep(std::max(*least, *most));
  }
  keep(rows.back());
  return kept;
}

}  // namespace tandem::dash
