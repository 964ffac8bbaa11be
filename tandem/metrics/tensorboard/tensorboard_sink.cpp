#include "tandem/metrics/tensorboard/tensorboard_sink.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/metrics/step_sequence.h"
#include "tandem/metrics/tensorboard/tensorboard_event.h"
#include "tandem/metrics/tensorboard/tfrecord.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "events.out.tfevents.";

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

struct KeptEvents {
  StepSequence steps;
  std::string damaged;  // files of which something could not be read
};

// Leaves the events of steps up to `last` that follow those that are kept already.
void cut(const fs::path& path, int64_t last, KeptEvents& kept) {
  size_t good = 0, rows = 0;
  bool damaged = false;
  std::optional<MappedFile> file;
  if (regular_file_bytes(path) > 0) {
    file.emplace(path);
    TfRecordReader reader({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()});
    while (const auto record = reader.next()) {
      const auto event = tensorboard::read_event(*record);
      if (event && event->step > last) break;
      if (!event || (!event->scalars.empty() && event->step <= kept.steps.last())) {
        damaged = true;
        break;
      }
      good = reader.position();
      if (event->scalars.empty()) continue;
      kept.steps.add(event->step);
      ++rows;
    }
    damaged = damaged || (reader.damaged() && kept.steps.last() < last);
  }
  file.reset();
  if (damaged) {
    // TensorBoard reads whatever has "tfevents" in its name, and so not the copy.
    kept.damaged +=
        fmt::format("{}: was damaged; what can be read of it is kept, and the file as it was is {}; ",
                    path.string(), keep_damaged_copy(path, "events").filename().string());
  }
  std::error_code error;
  if (rows == 0) {
    fs::remove(path, error);
  } else if (fs::file_size(path, error) != good && !error) {
    fs::resize_file(path, good, error);
  }
  if (error) throw IoError("{}: cannot truncate: {}", path.string(), error.message());
}

}  // namespace

TensorboardSink::TensorboardSink(const SinkOptions& options)
    : folder_(options.run_dir / "tensorboard"), config_(options.config), expected_(options.expected) {}

std::string TensorboardSink::resume(int64_t last) {
  make_directories(folder_);
  KeptEvents kept;
  int64_t number = static_cast<int64_t>(unix_s());
  for (const fs::path& file : event_files(folder_)) {
    number = std::max(number, number_of(file) + 1);
    cut(file, last, kept);
  }
  begin_file(last, number);
  const auto missing = kept.steps.first_missing(last);
  if (!kept.damaged.empty()) {
    return kept.damaged + (missing ? fmt::format("step {} is lost", *missing) : "no step is lost");
  }
  if (!expected_ || !missing) return "";
  return fmt::format("{}: has no rows of step {} and some up to {}", folder_.string(), *missing, last);
}

void TensorboardSink::begin_file(int64_t last, int64_t number) {
  file_ = GrowingFile(folder_ / fmt::format("{}{:010}.{}.{}.0", kPrefix, number, hostname(), ::getpid()), 0);
  const double wall_s = unix_s();
  std::string events = tfrecord(tensorboard::version_event(wall_s));
  if (last > 0) events += tfrecord(tensorboard::start_event(wall_s, last + 1));
  std::string text;  // indented, which is how Markdown shows text as it is
  for (size_t begin = 0, end; begin < config_.size(); begin = end + 1) {
    end = std::min(config_.find('\n', begin), config_.size());
    text += fmt::format("    {}\n", config_.substr(begin, end - begin));
  }
  if (!text.empty()) events += tfrecord(tensorboard::text_event(wall_s, last, "config", text));
  file_.append(events);
}

void TensorboardSink::write(const StepRecord& record) {
  file_.append(tfrecord(tensorboard::scalars_event(record)));
}

void TensorboardSink::write_histograms(int64_t step, const std::vector<Histogram>& histograms) {
  file_.append(tfrecord(tensorboard::histograms_event(unix_s(), step, histograms)));
}

void TensorboardSink::sync() { file_.sync(); }

}  // namespace tandem
