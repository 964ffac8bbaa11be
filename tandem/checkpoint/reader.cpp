#include "tandem/checkpoint/reader.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tandem/base/error.h"
#include "tandem/checkpoint/boxes.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/checkpoint/read_boxes.h"

namespace tandem {
namespace {

using Entries = std::unordered_map<std::string_view, const TensorEntry*>;

Entries entries_of(const Manifest& manifest) {
  Entries entries;
  for (const TensorEntry& tensor : manifest.tensors) entries[tensor.name] = &tensor;
  return entries;
}

// A store that does not answer may hold the newest all the same: going on from an older one would lose it.
void throw_if_unknown(const Store& store, const Error& error) {
  if (store.is_far() && dynamic_cast<const IoError*>(&error) != nullptr) throw IoError("{}", error.what());
}

std::string describe_type(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", dtype_name(dtype), to_string(shape));
}

bool is_hint(std::string_view name) { return name.starts_with(kHintPrefix); }

// Whether zeros stand for a tensor that is not there: hints, and the optimizer's "state:parameter" where the
// checkpoint has weights only.
bool may_lack(const Manifest& manifest, std::string_view name) {
  return is_hint(name) || (manifest.weights_only() && name.find(':') != std::string_view::npos);
}

bool is_there(const Entries& entries, const std::string& name, DType dtype, const Shape& shape) {
  const auto entry = entries.find(name);
  return entry != entries.end() && entry->second->dtype == dtype && entry->second->shape == shape;
}

void check_entry(const Manifest& manifest, const Entries& entries, const std::string& name, DType dtype,
                 const Shape& shape, const std::string& origin) {
  if (may_lack(manifest, name) || is_there(entries, name, dtype, shape)) return;
  const std::string wanted = describe_type(dtype, shape);
  const auto entry = entries.find(name);
  if (entry == entries.end()) {
    throw DataError("{}: checkpoint of another model: expected tensor '{}' ({}), found none of that name",
                    origin, name, wanted);
  }
  throw DataError("{}: checkpoint of another model: tensor '{}': expected {}, found {}", origin, name, wanted,
                  describe_type(entry->second->dtype, entry->second->shape));
}

void read_targets(const Manifest& manifest, std::span<const TensorTarget> targets, ThreadPool* pool) {
  const Entries entries = entries_of(manifest);
  std::vector<BoxRead> reads;
  for (const TensorTarget& target : targets) {
    if (may_lack(manifest, target.name) && !is_there(entries, target.name, target.dtype, target.shape)) {
      std::ranges::fill(target.bytes, std::byte{0});
      std::ranges::fill(target.low, std::byte{0});
      continue;
    }
    if (!target.bytes.empty())
      reads.push_back({entries.at(target.name), target.box, target.bytes, target.low});
  }
  read_boxes(manifest, reads, pool);
}

// Newest first: the order in which they were saved, which a resume from an older step makes differ from
// the order of steps.
std::vector<Manifest> read_newest_first(const StoreRef& store, std::vector<Skipped>& skipped) {
  std::vector<Manifest> manifests;
  for (const std::string& name : list_checkpoints(store)) {
    try {
      manifests.push_back(read_manifest(store, name));
    } catch (const Error& error) {
      throw_if_unknown(*store, error);
      skipped.insert(skipped.begin(), {store->description(name), error.what()});
    }
  }
  std::stable_sort(manifests.begin(), manifests.end(),
                   [](const Manifest& a, const Manifest& b) { return a.sequence > b.sequence; });
  return manifests;
}

std::string none_is_whole(const Store& store, const std::vector<Skipped>& skipped) {
  return fmt::format(
      "{}: none of {} checkpoints is whole; to start anew: --resume-from-checkpoint none; the newest: {}",
      store.description(""), skipped.size(), skipped.front().reason);
}

}  // namespace

void check_matches(const Manifest& manifest, std::span<const TensorTarget> targets, Match match,
                   std::span<const LogicalTensor> model) {
  const std::string origin = manifest.directory.string();
  const Entries entries = entries_of(manifest);
  std::unordered_set<std::string_view> known;
  for (const LogicalTensor& tensor : model) {
    check_entry(manifest, entries, tensor.name, tensor.dtype, tensor.shape, origin);
    known.insert(tensor.name);
  }
  for (const TensorTarget& target : targets) {
    check_entry(manifest, entries, target.name, target.dtype, target.shape, origin);
    TANDEM_CHECK(contains(whole_box(target.shape), target.box), "tensor '{}' of {}: {}", target.name,
                 to_string(target.shape), to_string(target.box));
    TANDEM_CHECK(target.fits(), "tensor '{}'", target.name);
    TANDEM_CHECK(model.empty() || known.contains(target.name), "tensor '{}' is not of the model",
                 target.name);
    if (model.empty()) known.insert(target.name);
  }
  if (match == Match::Subset) return;
  for (const TensorEntry& tensor : manifest.tensors) {
    if (known.contains(tensor.name) || is_hint(tensor.name)) continue;
    throw DataError(
        "{}: checkpoint of another model: it holds tensor '{}' ({}), which this one does not have", origin,
        tensor.name, describe_type(tensor.dtype, tensor.shape));
  }
}

void load(const Manifest& manifest, std::span<const TensorTarget> targets, ThreadPool* pool, Match match,
          std::span<const LogicalTensor> model) {
  check_matches(manifest, targets, match, model);
  read_targets(manifest, targets, pool);
}

void verify(const Manifest& manifest, ThreadPool* pool) {
  std::vector<BoxRead> reads;
  for (const TensorEntry& tensor : manifest.tensors) reads.push_back({&tensor, whole_box(tensor.shape), {}});
  read_boxes(manifest, reads, pool);
}

Latest find_latest(const StoreRef& store, Check check, ThreadPool* pool) {
  Latest latest;
  for (Manifest& manifest : read_newest_first(store, latest.skipped)) {
    try {
      if (check == Check::Digests) verify(manifest, pool);
    } catch (const Error& error) {
      throw_if_unknown(*store, error);
      latest.skipped.push_back({manifest.directory, error.what()});
      continue;
    }
    latest.manifest = std::move(manifest);
    break;
  }
  return latest;
}

Latest load_latest(const StoreRef& store, std::span<const TensorTarget> targets, ThreadPool* pool,
                   Match match, std::span<const LogicalTensor> model, const LoadGroup* group) {
  static const LoadGroup kAlone{0, [](const std::string& text) { return text; },
                                [](bool mine) { return mine; }};
  const LoadGroup& ranks = group != nullptr ? *group : kAlone;
  Latest latest;
  std::vector<Manifest> candidates;
  if (ranks.rank == 0) candidates = read_newest_first(store, latest.skipped);
  for (size_t i = 0;; ++i) {
    // Rank 0 says which is next: its name, or why there is none left, or nothing where there never was one.
    std::string next;
    if (i < candidates.size()) {
      next = candidates[i].name;
    } else if (!latest.skipped.empty()) {
      next = none_is_whole(*store, latest.skipped);
    }
    next = ranks.from_rank_0(next);
    if (next.empty()) return latest;
    if (!is_checkpoint_name(next)) throw DataError("{}", next);

    std::string trouble;
    Manifest manifest;
    try {
      manifest = ranks.rank == 0 ? std::move(candidates[i]) : read_manifest(store, next);
    } catch (const Error& error) {
      throw_if_unknown(*store, error);
      trouble = error.what();
    }
    if (trouble.empty()) {
      check_matches(manifest, targets, match, model);
      try {
        read_targets(manifest, targets, pool);
      } catch (const Error& error) {
        throw_if_unknown(*store, error);
        trouble = error.what();
      }
    }
    if (ranks.all(trouble.empty())) {
      latest.manifest = std::move(manifest);
      return latest;
    }
    if (trouble.empty())
      trouble = fmt::format("{}: another rank could not read its part", store->description(next));
    latest.skipped.push_back({store->description(next), trouble});
  }
}

}  // namespace tandem
