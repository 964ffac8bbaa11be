#include "tandem/metrics/tensorboard_sink.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/metrics/tensorboard_event.h"
#include "tandem/metrics/tfrecord.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "events.out.tfevents.";

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Files of earlier starts, in the order in which TensorBoard reads them: that of their names.
std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with(kPrefix)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

int64_t number_of(const fs::path& file) {
  const std::string name = file.filename().string();
  int64_t number = 0;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number);
  return number;
}

struct Kept {
  std::vector<int64_t> steps;
  std::string damaged;  // files of which something could not be read
};

// TensorBoard reads whatever has "tfevents" in its name.
fs::path kept_beside(const fs::path& path) {
  fs::path copy;
  for (int number = 1; is_there(copy = path.parent_path() / fmt::format("damaged-{}.events", number));)
    ++number;
  std::error_code error;
  fs::copy_file(path, copy, error);
  if (error) throw IoError("{}: cannot keep a copy of {}: {}", copy.string(), path.string(), error.message());
  return copy;
}

// Leaves the events of steps up to `last` that follow those that are kept already.
void cut(const fs::path& path, int64_t last, Kept& kept) {
  size_t good = 0, rows = 0;
  bool damaged = false;
  std::optional<MappedFile> file;
  if (regular_file_bytes(path) > 0) {
    file.emplace(path);
    TfRecordReader reader({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()});
    while (const auto record = reader.next()) {
      const auto event = tensorboard::read_event(*record);
      if (event && event->step > last) break;
      if (!event || (!event->scalars.empty() && !kept.steps.empty() && event->step <= kept.steps.back())) {
        damaged = true;
        break;
      }
      good = reader.position();
      if (event->scalars.empty()) continue;
      kept.steps.push_back(event->step);
      ++rows;
    }
    damaged = damaged || (reader.damaged() && (kept.steps.empty() || kept.steps.back() < last));
  }
  file.reset();
  if (damaged) {
    kept.damaged +=
        fmt::format("{}: was damaged; what can be read of it is kept, and the file as it was is {}; ",
                    path.string(), kept_beside(path).filename().string());
  }
  std::error_code error;
  if (rows == 0) {
    fs::remove(path, error);
  } else if (fs::file_size(path, error) != good && !error) {
    fs::resize_file(path, good, error);
  }
  if (error) throw IoError("{}: cannot truncate: {}", path.string(), error.message());
}

// The first step up to `last` that has no row.
std::optional<int64_t> first_missing(const std::vector<int64_t>& steps, int64_t last) {
  int64_t expected = steps.empty() ? 1 : steps.front();
  for (int64_t step : steps) {
    if (step != expected) return expected;
    ++expected;
  }
  return expected <= last ? std::optional(expected) : std::nullopt;
}

}  // namespace

TensorboardSink::TensorboardSink(const SinkOptions& options)
    : folder_(options.run_dir / "tensorboard"), config_(options.config), expected_(options.expected) {}

TensorboardSink::~TensorboardSink() {
  if (fd_ >= 0) ::close(fd_);
}

std::string TensorboardSink::resume(int64_t last) {
  make_directories(folder_);
  Kept kept;
  int64_t number = static_cast<int64_t>(now_s());
  for (const fs::path& file : event_files(folder_)) {
    number = std::max(number, number_of(file) + 1);
    cut(file, last, kept);
  }
  begin_file(last, number);
  const auto missing = first_missing(kept.steps, last);
  if (!kept.damaged.empty()) {
    return kept.damaged + (missing ? fmt::format("step {} is lost", *missing) : "no step is lost");
  }
  if (!expected_ || !missing) return "";
  return fmt::format("{}: has no rows of step {} and some up to {}", folder_.string(), *missing, last);
}

void TensorboardSink::begin_file(int64_t last, int64_t number) {
  if (fd_ >= 0) ::close(fd_);
  bytes_ = 0;
  path_ = folder_ / fmt::format("{}{:010}.{}.{}.0", kPrefix, number, hostname(), ::getpid());
  fd_ = open_regular(path_, O_WRONLY | O_CREAT | O_APPEND);
  sync_directory(folder_);
  const double wall_s = now_s();
  std::string events = tfrecord(tensorboard::version_event(wall_s));
  if (last > 0) events += tfrecord(tensorboard::start_event(wall_s, last + 1));
  std::string text;  // indented, which is how Markdown shows text as it is
  for (size_t begin = 0, end; begin < config_.size(); begin = end + 1) {
    end = std::min(config_.find('\n', begin), config_.size());
    text += fmt::format("    {}\n", config_.substr(begin, end - begin));
  }
  if (!text.empty()) events += tfrecord(tensorboard::text_event(wall_s, last, "config", text));
  append(events);
}

void TensorboardSink::append(const std::string& events) {
  // Half a record, of a disk that was full, would hide all that come after it.
  if (torn_ && ::ftruncate(fd_, bytes_) != 0)
    throw IoError("{}: cannot truncate: {}", path_.string(), std::strerror(errno));
  torn_ = true;
  for (size_t done = 0; done < events.size();) {
    const ssize_t n = ::write(fd_, events.data() + done, events.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw IoError("{}: cannot write: {}", path_.string(), std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  torn_ = false;
  bytes_ += static_cast<int64_t>(events.size());
}

void TensorboardSink::write(const StepRecord& record) {
  append(tfrecord(tensorboard::scalars_event(record)));
}

void TensorboardSink::sync() {
  if (::fdatasync(fd_) != 0) throw IoError("{}: cannot sync: {}", path_.string(), std::strerror(errno));
}

}  // namespace tandem
