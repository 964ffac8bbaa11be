#include "tandem/watch/spot/watcher.h"

#include <sys/stat.h>

#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem::spot {
namespace {

constexpr std::chrono::milliseconds kFileInterval{250};

}  // namespace

Watcher::Watcher(const SpotConfig& config, Listener listener)
    : config_(config), listener_(std::move(listener)) {
  if (config_.watch == SpotWatch::None && config_.file.empty()) return;
  thread_ = std::thread([this] { watch(); });
}

Watcher::~Watcher() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Watcher::sleep(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !ended_.wait_for(lock, time, [this] { return ending_.load(); });
}

void Watcher::watch() {
  const std::unique_ptr<Source> source = find_source();
  if (!source && config_.file.empty()) return;
  const auto between = source ? source->interval() : kFileInterval;
  auto due = std::chrono::steady_clock::now();
  do {
    std::optional<Notice> notice = look_at_file();
    if (!notice && source && std::chrono::steady_clock::now() >= due) {
      notice = ask(source.get());
      due = std::chrono::steady_clock::now() + between;
    }
    if (notice) return listener_.on_notice(*notice);
  } while (sleep(config_.file.empty() ? between : kFileInterval));
}

std::unique_ptr<Source> Watcher::find_source() {
  if (config_.watch == SpotWatch::None) return nullptr;
  if (config_.watch != SpotWatch::Auto) return make_source(config_.watch, config_.endpoint, &ending_);
  for (const SpotWatch cloud : {SpotWatch::Aws, SpotWatch::Gcp, SpotWatch::Azure}) {
    std::unique_ptr<Source> source = make_source(cloud, config_.endpoint, &ending_);
    if (!source->answers()) continue;
    listener_.tell(fmt::format("spot.watch: notices of {} are watched", source->name()));
    return source;
  }
  if (!ending_) listener_.tell("spot.watch: no cloud's metadata server answers here; nothing is watched");
  return nullptr;
}

std::optional<Notice> Watcher::ask(Source* source) {
  try {
    std::optional<Notice> notice = source->ask();
    is_told_ = false;
    return notice;
  } catch (const std::exception& error) {
    if (!ending_ && !std::exchange(is_told_, true))
      listener_.tell(
          fmt::format("warning: spot.watch: {}; it is asked again until it answers", error.what()));
    return std::nullopt;
  }
}

std::optional<Notice> Watcher::look_at_file() const {
  struct stat status {};
  if (config_.file.empty() || ::stat(config_.file.c_str(), &status) != 0) return std::nullopt;
  const double changed =
      static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
  std::string content;
  try {
    content = read_text(config_.file);
  } catch (const IoError&) {  // that it is there is all that counts
  }
  return parse_file(config_.file, content, changed);
}

}  // namespace tandem::spot
