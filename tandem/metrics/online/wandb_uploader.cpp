#include "tandem/metrics/online/wandb_uploader.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem::wandb {
namespace {

// As a line of wandb-history.jsonl. Values are JSON already, but for NaN and Infinity, which W&B takes.
std::string line_of(const Record& row) {
  std::string line = "{";
  for (const auto& [key, value] : row.items) {
    if (line.size() > 1) line += ',';
    line += nlohmann::json(key).dump() + ':' + value;
  }
  return line + '}';
}

std::filesystem::path sent_path(const std::filesystem::path& file) { return file.string() + ".sent"; }

// Of an earlier process; without limit where none has noted it.
int64_t read_sent(const std::filesystem::path& file) {
  if (!is_there(sent_path(file))) return std::numeric_limits<int64_t>::max();
  int64_t step = 0;
  std::ifstream(sent_path(file)) >> step;
  return std::max<int64_t>(0, step);
}

// Before rows behind `last` come to the file: of them the server has nothing yet, whatever it has.
int64_t take_back_sent(const std::filesystem::path& file, int64_t last) {
  const int64_t sent = std::min(read_sent(file), last);
  try {
    write_atomically(sent_path(file), fmt::format("{}\n", sent));
  } catch (const std::exception&) {  // no mark would claim too much; one of 0 claims nothing
    std::error_code ignored;
    std::filesystem::resize_file(sent_path(file), 0, ignored);
  }
  return sent;
}

std::string read_part(const std::filesystem::path& path, int64_t begin, int64_t end) {
  std::string part(static_cast<size_t>(end - begin), '\0');
  std::ifstream file(path, std::ios::binary);
  file.seekg(begin);
  file.read(part.data(), static_cast<std::streamsize>(part.size()));
  if (!file) throw IoError("{}: cannot be read", path.string());
  return part;
}

}  // namespace

Uploader::Uploader(Access access, RunFacts run, std::filesystem::path file, int64_t last, Patience patience)
    : run_(std::move(run)),
      file_(std::move(file)),
      last_(last),
      patience_(patience),
      known_sent_(take_back_sent(file_, last)),
      api_(std::move(access), [this] { return given_up(); }),
      position_(static_cast<int64_t>(file_head().size())),
      thread_([this] { work(); }) {}

Uploader::~Uploader() { end(false); }

void Uploader::grown(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_ = bytes;
}

bool Uploader::end(bool complete) {
  if (!thread_.joinable()) return finished_;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    complete_ = complete;
    give_up_ = Clock::now() + (failing_   ? patience_.at_end_failing
                               : complete ? patience_.at_end
                                          : patience_.at_stop);
  }
  changed_.notify_all();
  thread_.join();
  return finished_;
}

std::vector<std::string> Uploader::take_news() {
  const std::lock_guard lock(mutex_);
  return std::exchange(news_, {});
}

bool Uploader::given_up() {
  const std::lock_guard lock(mutex_);
  return Clock::now() >= give_up_;
}

void Uploader::work() {
  auto next = Clock::now();
  auto wait = patience_.retry;
  bool finished = false, ending = false;
  while (!finished && !given_up()) {
    int64_t bytes = 0;
    {
      // Where the run ends, it acts at once, however long it has to wait otherwise.
      std::unique_lock lock(mutex_);
      changed_.wait_until(lock, std::min(next, give_up_), [&] { return ending_ && !ending; });
      bytes = bytes_;
      ending = ending_;
    }
    try {
      const bool all = act(bytes, ending);
      note_success();
      wait = patience_.retry;
      next = all ? Clock::now() + patience_.interval : Clock::now();
      finished = all && ending;
    } catch (const std::exception& error) {
      note_failure(error.what());
      next = Clock::now() + (ending ? patience_.retry : wait);
      wait = std::min(2 * wait, patience_.most_retry);
    }
  }
  finished_ = finished;
}

bool Uploader::act(int64_t bytes, bool ending) {
  if (!place_) connect();
  Batch batch = read_batch(bytes);
  batch.lines.first = line_;
  batch.lines.complete = ending && batch.all && complete_;
  const bool quiet = batch.lines.history.empty() && !batch.lines.complete;
  if (!quiet || Clock::now() - sent_ >= patience_.heartbeat) {
    api_.send(*place_, batch.lines);
    sent_ = Clock::now();
  }
  line_ += std::ssize(batch.lines.history);
  after_ = std::max(after_, batch.last_step);
  if (batch.last_step > 0) note_sent(after_);
  position_ = batch.end;
  return batch.all;
}

void Uploader::connect() {
  const Known known = api_.find(run_).value_or(Known{});
  const Place place = api_.upsert(run_);
  after_ = std::min({known.last_step, last_, known_sent_});
  line_ = std::max<int64_t>(0, known.lines - (known.last_step - after_));
  place_ = place;
}

// In place and without a sync: less than what is true costs no more than sending it again.
void Uploader::note_sent(int64_t step) { std::ofstream(sent_path(file_), std::ios::trunc) << step << "\n"; }

// The rows behind step after_, from position_ on.
Uploader::Batch Uploader::read_batch(int64_t bytes) const {
  Batch batch;
  batch.end = position_;
  if (position_ >= bytes) return batch;
  for (auto piece = static_cast<int64_t>(patience_.request_bytes);; piece *= 2) {
    const int64_t end = std::min(bytes, position_ + piece);
    const std::string part = read_part(file_, position_, end);
    LogReader reader(part, static_cast<size_t>(position_));
    while (const auto bytes_of_record = reader.next()) {
      batch.end = static_cast<int64_t>(reader.position());
      const auto record = read_record(*bytes_of_record);
      if (!record || record->kind != Record::Kind::History || record->step <= after_) continue;
      batch.lines.history.push_back(line_of(*record));
      batch.last_step = record->step;
    }
    if (reader.damaged()) throw IoError("{}: is damaged at byte {}", file_.string(), batch.end);
    batch.all = end == bytes;
    // A record may be larger than a piece.
    if (batch.end > position_ || batch.all) break;
  }
  if (!batch.lines.history.empty()) batch.lines.summary = batch.lines.history.back();
  return batch;
}

void Uploader::note_failure(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(failing_, true))
    news_.push_back(fmt::format("{}; training goes on, and rows wait for it", why));
}

void Uploader::note_success() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(failing_, false)) news_.push_back("W&B is told again, and catches up");
}

}  // namespace tandem::wandb
