#include "tandem/hub/fresh_directory.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/store/file_system.h"

namespace tandem::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kDraft = ".partial-";

void remove_dead_drafts(const fs::path& place) {
  const std::string prefix = place.filename().string() + std::string(kDraft);
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(place.parent_path(), ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    int pid = 0;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + prefix.size(), end, pid);
    const bool is_draft = parsed.ec == std::errc() && parsed.ptr == end && pid > 0;
    if (is_draft && ::kill(pid, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

FreshDirectory::FreshDirectory(fs::path place) : place_(fs::absolute(place)) {
  if (!place_.has_filename()) place_ = place_.parent_path();
  if (is_there(place_) && (!fs::is_directory(place_) || !fs::is_empty(place_)))
    throw ConfigError("{}: is there and not empty; name a directory that is not there yet", place.string());
  make_directories(place_.parent_path());
  remove_dead_drafts(place_);
  draft_ = place_;
  draft_ += fmt::format("{}{}", kDraft, ::getpid());
  make_directories(draft_);
}

FreshDirectory::~FreshDirectory() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(draft_, ignored);
}

void FreshDirectory::commit() {
  move_directory(draft_, place_, "config.json");
  committed_ = true;
}

}  // namespace tandem::hub
