#include "tandem/dash/arena_picture.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tandem::dash {
namespace {

using PlainJson = nlohmann::json;

constexpr size_t kMostBuffers = 20000;

struct Buffer {
  int64_t offset, bytes;
  int64_t first, last;
};

// Buffers that hold something now, by offset; none overlap.
class Arena {
 public:
  void write(int64_t offset, int64_t bytes, int64_t command) {
    Buffer made{offset, bytes, command, command};
    for (auto at = overlapping(offset, bytes); at != live_.end() && at->first < offset + bytes;) {
      const Buffer& old = at->second;
      // Written in the place of what the command reads: it is that buffer still.
      if (old.offset <= offset && old.offset + old.bytes >= offset + bytes && old.last >= command) {
        at->second.last = command;
        return;
      }
      done_.push_back(old);
      at = live_.erase(at);
    }
    live_.emplace(offset, made);
  }
  void read(int64_t offset, int64_t bytes, int64_t command) {
    auto at = overlapping(offset, bytes);
    if (at == live_.end() || at->first >= offset + bytes) {
      live_.emplace(offset, Buffer{offset, bytes, 0, command});  // the batch, which lay there before
      return;
    }
    for (; at != live_.end() && at->first < offset + bytes; ++at) at->second.last = command;
  }
  std::vector<Buffer> finish() {
    for (const auto& entry : live_) done_.push_back(entry.second);
    live_.clear();
    return std::move(done_);
  }

 private:
  std::map<int64_t, Buffer>::iterator overlapping(int64_t offset, int64_t /*bytes*/) {
    auto at = live_.upper_bound(offset);
    if (at != live_.begin() && std::prev(at)->first + std::prev(at)->second.bytes > offset)
      return std::prev(at);
    return at;
  }
  std::map<int64_t, Buffer> live_;
  std::vector<Buffer> done_;
};

template <typename Visit>
void visit_activations(const PlainJson& command, const char* side, Visit&& visit) {
  for (const PlainJson& slice : command.at(side)) {
    if (slice.at("arena") == "activations")
      visit(slice.at("offset").get<int64_t>(), slice.at("bytes").get<int64_t>());
  }
}

nlohmann::ordered_json draw_arena(const PlainJson& plan) {
  const PlainJson& executable = plan.at("executables").at(0);
  const PlainJson& commands = executable.at("commands");
  nlohmann::ordered_json picture = {{"arena_bytes", plan.at("planned_bytes").at("activations")},
                                    {"commands", nlohmann::ordered_json::array()},
                                    {"buffers", nlohmann::ordered_json::array()}};
  Arena arena;
  int64_t number = 0;
  for (const PlainJson& command : commands) {
    visit_activations(command, "in",
                      [&](int64_t offset, int64_t bytes) { arena.read(offset, bytes, number); });
    visit_activations(command, "out",
                      [&](int64_t offset, int64_t bytes) { arena.write(offset, bytes, number); });
    picture["commands"].push_back({command.at("kernel"), command.at("block"), command.at("phase")});
    ++number;
  }
  std::vector<Buffer> buffers = arena.finish();
  std::sort(buffers.begin(), buffers.end(),
            [](const Buffer& a, const Buffer& b) { return a.bytes > b.bytes; });
  if (buffers.size() > kMostBuffers) buffers.resize(kMostBuffers);
  for (const Buffer& one : buffers)
    picture["buffers"].push_back({one.offset, one.bytes, one.first, one.last});
  return picture;
}

}  // namespace

nlohmann::ordered_json arena_picture(const PlainJson& plan) {
  try {
    return draw_arena(plan);
  } catch (const PlainJson::exception&) {
    return nullptr;  // of another version, or somebody else's file
  }
}

}  // namespace tandem::dash
