#include "tandem/train/storage/run_mirror.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr auto kEvery = std::chrono::seconds(30);
// An object cannot grow: a file that has is put again, whole. A long one waits, so that this is what it
// costs.
constexpr int64_t kBytesPerSecond = int64_t{256} << 10;
constexpr int64_t kAtOnce = int64_t{16} << 20;  // longer ones are read and sent piece by piece

std::vector<std::string> names_of(const fs::path& folder, std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(prefix) && !name.starts_with('.') && entry->is_regular_file(error))
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void put_file(Store& store, const std::string& name, const fs::path& file, int64_t bytes) {
  if (bytes <= kAtOnce) {
    std::string text = read_text(file);  // it may have grown
    store.put(name, text);
    return;
  }
  const auto source = StoreRef(file.parent_path())->open(file.filename().string());
  const auto object = store.create(name);
  std::vector<std::byte> piece(size_t{1} << 20);
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(piece.size())) {
    const auto part =
        std::span(piece).first(static_cast<size_t>(std::min(bytes - at, static_cast<int64_t>(piece.size()))));
    source->read_at(at, part);
    object->write_all(part);
  }
  object->finish();
}

}  // namespace

RunMirror::RunMirror(StoreRef store, MirrorOptions options)
    : store_(std::move(store)), options_(std::move(options)), thread_([this] { work(); }) {}

RunMirror::~RunMirror() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RunMirror::wake() {
  {
    const std::lock_guard lock(mutex_);
    wake_ = true;
  }
  changed_.notify_all();
}

std::vector<std::string> RunMirror::files() const {
  std::vector<std::string> found;
  for (const std::string& name :
       names_of(options_.directory / "logs", fmt::format("rank-{}.", options_.rank)))
    found.push_back("logs/" + name);
  if (options_.rank != 0) return found;
  for (const char* name :
       {"config.yaml", "plan.json", "metrics.jsonl", "metrics.csv", "events.jsonl", "summary.json"}) {
    if (is_there(options_.directory / name)) found.emplace_back(name);
  }
  for (const std::string& name : names_of(options_.directory / "tensorboard", ""))
    found.push_back("tensorboard/" + name);
  return found;
}

void RunMirror::work() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kEvery, [this] { return wake_ || stop_; });
    const bool last = stop_;
    wake_ = false;
    lock.unlock();
    if (!last || trouble_.empty()) bring_all(last);
    if (last) return;
  }
}

// After the first that fails the others wait, too: each would take as long to fail.
void RunMirror::bring_all(bool last) {
  try {
    for (const std::string& file : files()) bring(file, last);
    if (!trouble_.empty()) options_.log("the store takes metrics and logs again");
    trouble_.clear();
  } catch (const std::exception& error) {
    if (trouble_.empty())
      options_.log(
          fmt::format("metrics and logs do not get to the store: {}; tried again later", error.what()));
    trouble_ = error.what();
  }
}

void RunMirror::bring(const std::string& file, bool last) {
  const fs::path path = options_.directory / file;
  std::error_code error;
  const auto modified = fs::last_write_time(path, error);
  const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
  if (error) return;  // gone meanwhile
  Sent& sent = sent_[file];
  if (sent.bytes == bytes && sent.modified == modified) return;
  const auto pause = std::chrono::seconds(std::max<int64_t>(0, sent.bytes) / kBytesPerSecond);
  if (!last && sent.bytes >= 0 && Clock::now() - sent.at < pause) return;
  put_file(*store_, fmt::format("runs/{}/{}", options_.id, file), path, bytes);
  sent = {bytes, modified, Clock::now()};
}

}  // namespace tandem
