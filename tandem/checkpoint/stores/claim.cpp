#include "tandem/checkpoint/stores/claim.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/system.h"

namespace tandem {
namespace {

constexpr std::string_view kPrefix = "claim-";
constexpr int64_t kMostClaimBytes = 4096;

std::string name_of(int64_t sequence) { return fmt::format("{}{:08}", kPrefix, sequence); }

std::optional<int64_t> sequence_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64_t sequence = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), sequence);
  if (name.empty() || error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return sequence;
}

// Oldest first.
std::vector<int64_t> sequences(const StoreRef& store) {
  std::vector<int64_t> found;
  for (const StoredObject& object : store->list(std::string(kPrefix))) {
    if (const auto sequence = sequence_of(object.name)) found.push_back(*sequence);
  }
  std::sort(found.begin(), found.end());
  return found;
}

Claim read_claim(const StoreRef& store, int64_t sequence) {
  const std::string text = read_text(*store->open(name_of(sequence)), kMostClaimBytes);
  const nlohmann::json content = nlohmann::json::parse(text, nullptr, false);
  const auto field = [&](const char* key) {
    return content.is_object() && content.contains(key) && content[key].is_string()
               ? content[key].get<std::string>()
               : std::string();
  };
  Claim claim{sequence, field("run"), field("host"), field("time")};
  if (claim.run.empty()) throw DataError("{}: damaged: names no run", store->description(name_of(sequence)));
  return claim;
}

[[noreturn]] void throw_lost(const StoreRef& store, const Claim& winner) {
  throw DataError(
      "{}: {} is writing checkpoints there, and was faster; name another checkpoint.store, or stop that run "
      "and "
      "go on from its newest with --resume-from-checkpoint {}",
      store->description(""), describe(winner), store->description(""));
}

void check_newest(const StoreRef& store, const std::string& run, int64_t sequence) {
  const std::vector<int64_t> taken = sequences(store);
  if (taken.empty() || taken.back() <= sequence) return;
  const Claim newest = read_claim(store, taken.back());
  if (newest.run != run) throw_lost(store, newest);
}

}  // namespace

std::string describe(const Claim& claim) { return fmt::format("a run on {} ({})", claim.host, claim.time); }

std::optional<Claim> newest_claim(const StoreRef& store) {
  const std::vector<int64_t> taken = sequences(store);
  if (taken.empty()) return std::nullopt;
  return read_claim(store, taken.back());
}

void take_claim(const StoreRef& store, const std::string& run, int64_t sequence) {
  const nlohmann::json text = {{"run", run}, {"host", hostname()}, {"time", utc_time()}};
  const bool mine = store->put_new(name_of(sequence), text.dump());
  if (!mine) {
    const Claim there = read_claim(store, sequence);
    if (there.run != run) throw_lost(store, there);
  }
  // A later one may have been taken, and this one dropped, before it was put again.
  try {
    check_newest(store, run, sequence);
  } catch (const DataError&) {
    if (mine) store->remove(name_of(sequence));
    throw;
  }
}

void check_claim(const StoreRef& store, const std::string& run, int64_t sequence) {
  check_newest(store, run, sequence);
}

std::vector<std::string> old_claims(const StoreRef& store) {
  std::vector<std::string> names;
  const std::vector<int64_t> taken = sequences(store);
  for (size_t i = 0; i + 1 < taken.size(); ++i) names.push_back(name_of(taken[i]));
  return names;
}

}  // namespace tandem
