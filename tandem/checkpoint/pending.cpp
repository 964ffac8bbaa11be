#include "tandem/checkpoint/pending.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <thread>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/checkpoint/part.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::string_view kFailed = "failed-", kLeft = "left-";
constexpr std::string_view kPart = "part-", kPartEnd = ".json";

// The 3 of "part-00003.json".
std::optional<int> rank_in(std::string_view name, std::string_view prefix, std::string_view suffix = {}) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  name.remove_suffix(std::min(suffix.size(), name.size()));
  int rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return rank;
}

std::string note_name(std::string_view prefix, int rank) { return fmt::format("{}{:05}", prefix, rank); }

std::string list_ranks(const std::vector<int>& ranks) {
  constexpr size_t kShown = 8;
  const auto shown = std::span(ranks).first(std::min(kShown, ranks.size()));
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(shown, ", "),
                     ranks.size() > kShown ? fmt::format(" and {} more", ranks.size() - kShown) : "");
}

// Looks often at first and seldom later; `expired` when nothing has changed for too long.
class Patience {
 public:
  bool expired(int64_t progress, milliseconds limit) {
    if (std::exchange(progress_, progress) == progress) return Clock::now() - since_ > limit;
    since_ = Clock::now();
    return false;
  }
  void sleep(milliseconds longest) {
    std::this_thread::sleep_for(interval_);
    interval_ = std::min(interval_ * 2, longest);
  }

 private:
  int64_t progress_ = -1;
  Clock::time_point since_ = Clock::now();
  milliseconds interval_{1};
};

std::string seconds(milliseconds duration) {
  return format_duration(std::chrono::duration<double>(duration).count());
}

}  // namespace

PendingSave::PendingSave(const StoreRef& store, const std::string& name, const SaveGroup& group)
    : store_(store), name_(name), group_(group), draft_(store->draft(name, group.token)) {}

PendingSave::~PendingSave() {
  if (committed_) return;
  try {
    if (draft_->state() != Draft::State::Open) return;
    if (group_.world_size > 1) {
      if (look().failed.empty()) return;
      draft_->create(note_name(kLeft, group_.rank))->finish();
      if (static_cast<int>(look().left.size()) != group_.world_size) return;
    }
    draft_->remove_all();
  } catch (const std::exception&) {  // gone meanwhile; or else the next start clears it
  }
}

PendingSave::Contents PendingSave::look() const {
  Contents contents;
  for (const StoredObject& object : draft_->list()) {
    if (const auto failed = rank_in(object.name, kFailed)) contents.failed.push_back(*failed);
    if (const auto left = rank_in(object.name, kLeft)) contents.left.push_back(*left);
    if (const auto part = rank_in(object.name, kPart, kPartEnd)) contents.parts.push_back(*part);
    contents.progress += 1 + object.bytes;
  }
  std::sort(contents.failed.begin(), contents.failed.end());
  return contents;
}

void PendingSave::throw_if_failed(const Contents& contents) const {
  if (contents.failed.empty()) return;
  const int rank = contents.failed.front();
  std::string reason;
  try {
    reason = read_text(*draft_->open(note_name(kFailed, rank)));
  } catch (const Error&) {  // the last one to leave has removed it
  }
  if (reason.empty()) reason = "could not save its part; its log says why";
  if (rank == group_.rank) throw IoError("rank {}: {}", rank, reason);
  throw CommError("rank {}: {}", rank, reason);
}

void PendingSave::throw_if_failed() const { throw_if_failed(look()); }

std::vector<std::string> PendingSave::await_parts(const std::function<milliseconds()>& patience) const {
  Patience waited;
  for (;;) {
    const Contents contents = look();
    throw_if_failed(contents);
    std::vector<int> missing;
    for (int rank = 1; rank < group_.world_size; ++rank) {
      if (std::find(contents.parts.begin(), contents.parts.end(), rank) == contents.parts.end())
        missing.push_back(rank);
    }
    if (missing.empty()) break;
    group_.check_peers();
    const milliseconds limit = patience();
    if (waited.expired(contents.progress, limit)) {
      throw IoError("{}: no part of the checkpoint came, and nothing was written for {}", list_ranks(missing),
                    seconds(limit));
    }
    waited.sleep(group_.poll);
  }
  return part_names();
}

void PendingSave::await_commit() const {
  const milliseconds limit = group_.timeout * 2;  // rank 0 is the first to give up, and says why
  Patience waited;
  for (;;) {
    if (draft_->state() == Draft::State::Committed) return;
    const Contents contents = look();
    throw_if_failed(contents);
    switch (draft_->state()) {
      case Draft::State::Committed: return;  // between the two looks
      case Draft::State::Gone: throw CommError("rank 0: gave up the checkpoint; its log says why");
      case Draft::State::Open: break;
    }
    group_.check_peers();
    if (waited.expired(contents.progress, limit))
      throw IoError("rank 0: has not committed the checkpoint, and nothing was written for {}",
                    seconds(limit));
    waited.sleep(group_.poll);
  }
}

std::vector<std::string> PendingSave::part_names() const {
  std::vector<std::string> names;
  for (int rank = 1; rank < group_.world_size; ++rank) names.push_back(part_file_name(rank));
  return names;
}

void PendingSave::commit(std::string_view index) {
  try {
    draft_->commit(index, part_names());
  } catch (const Error&) {
    committed_ = is_past_open();  // the trouble came later
    throw;
  }
  committed_ = true;
}

bool PendingSave::is_past_open() const noexcept {
  try {
    return draft_->state() != Draft::State::Open;
  } catch (const std::exception&) {  // committed, and nobody knows whether it is durable
    return true;
  }
}

void PendingSave::drop_replaced() noexcept {
  if (committed_) draft_->drop_replaced();
}

void PendingSave::add_part(std::string_view text) {
  try {
    draft_->put(part_file_name(group_.rank), text);
  } catch (const Error&) {
    throw_if_failed();  // then rank 0 has cleared away what the others wrote
    throw;
  }
  part_in_place_ = true;
}

void PendingSave::fail(const std::string& reason) noexcept {
  if (group_.world_size == 1 || committed_ || part_in_place_) return;
  const auto remove = [&](const std::string& name) {
    try {
      draft_->remove(name);
    } catch (const Error&) {  // goes with the draft
    }
  };
  try {
    remove(data_file_name(group_.rank));  // first: it may be what fills the disk
    remove(part_file_name(group_.rank));
    if (look().failed.empty()) {
      const std::string note = note_name(kFailed, group_.rank);
      try {
        draft_->put(note, reason);
      } catch (const Error&) {
        draft_->create(note)->finish();  // no room for the reason; that there is one must be known
      }
    }
    if (group_.rank != 0) return;
    // Those who are still writing see the note when they are done; what the others wrote goes now.
    for (const StoredObject& object : draft_->list()) {
      if (!object.name.starts_with(kFailed) && !object.name.starts_with(kLeft)) remove(object.name);
    }
  } catch (const std::exception&) {  // the draft itself is lost: the others' time runs out
  }
}

}  // namespace tandem
