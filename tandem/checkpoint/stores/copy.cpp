#include "tandem/checkpoint/stores/copy.h"

#include <algorithm>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/checkpoint/part.h"
#include "tandem/checkpoint/running_digest.h"
#include "tandem/checkpoint/stores/upload.h"
#include "tandem/store/draft.h"
#include "tandem/store/in_order.h"

namespace tandem {
namespace {

// Whether two manifests tell of the same bits; where they lie may differ.
bool same_content(const Manifest& a, const Manifest& b) {
  if (a.sequence != b.sequence || a.meta.step != b.meta.step || a.time != b.time ||
      a.tensors.size() != b.tensors.size())
    return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const TensorEntry &one = a.tensors[i], &two = b.tensors[i];
    if (one.name != two.name || one.shards.size() != two.shards.size()) return false;
    for (size_t j = 0; j < one.shards.size(); ++j) {
      if (one.shards[j].digests != two.shards[j].digests || one.shards[j].box != two.shards[j].box)
        return false;
    }
  }
  return true;
}

bool is_there(const Manifest& source, const StoreRef& dst) {
  const std::vector<std::string> bundles = dst->bundles();
  if (std::find(bundles.begin(), bundles.end(), source.name) == bundles.end()) return false;
  try {
    return same_content(source, read_manifest(dst, source.name));
  } catch (const DataError&) {  // damaged: the copy takes its place
    return false;
  }
}

class NoWriter final : public ObjectWriter {
 public:
  void write_all(std::span<const std::byte> /*bytes*/) override {}
  void finish() override {}
};

// Whether a file of an earlier try is whole and right.
bool is_right(const Draft& draft, const std::string& name, int64_t bytes,
              std::span<const DigestedRange> ranges) {
  const std::vector<StoredObject> there = draft.list();
  const bool found = std::any_of(there.begin(), there.end(), [&](const StoredObject& object) {
    return object.name == name && object.bytes == bytes;
  });
  if (!found) return false;
  try {
    NoWriter nowhere;
    copy_checked(*draft.open(name), ranges, nowhere, [](int64_t) {});
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string digest_of(const ObjectReader& object) {
  const int64_t bytes = object.size();
  InOrder in_order(object);
  RunningDigest digest;
  while (in_order.at() < bytes)
    digest.add(in_order.next(std::min(static_cast<size_t>(bytes - in_order.at()), kDigestPiece)));
  return digest.hex();
}

}  // namespace

void copy_checkpoint(const Manifest& source, const StoreRef& dst, CopyReport& report,
                     const std::function<void(int64_t)>& told) {
  if (is_there(source, dst)) {
    ++report.skipped;
    return;
  }
  // The same for each try, and another for each checkpoint.
  const std::string text = render_manifest(source);
  const std::string token = "copy-" + digest_hex(std::as_bytes(std::span(text))).substr(0, 16);
  const auto draft = dst->draft(source.name, token);
  for (const CheckpointFile& file : source.files) {
    const auto ranges = digested_ranges(source.tensors, file.name, source.digest_block);
    if (is_right(*draft, file.name, file.bytes, ranges)) {
      told(file.bytes);
      continue;
    }
    const auto writer = draft->create(file.name);
    copy_checked(*source.open(file.name), ranges, *writer, told);
    writer->finish();
    report.bytes += file.bytes;
  }
  Manifest manifest = source;
  name_as_committed(manifest, *draft);
  draft->commit(render_manifest(manifest), {});
  const Manifest there = read_manifest(dst, source.name);
  draft->drop_replaced();
  for (const StoredObject& object : draft->list()) {  // the note of the commit
    const auto is_it = [&](const CheckpointFile& file) {
      return file.name == draft->committed_name(object.name);
    };
    if (std::none_of(there.files.begin(), there.files.end(), is_it)) draft->remove(object.name);
  }
  ++report.copied;
}

void copy_objects(const StoreRef& source, const StoreRef& dst, CopyReport& report,
                  const std::function<void(int64_t)>& told) {
  std::vector<StoredObject> objects = source->list("");
  std::stable_partition(objects.begin(), objects.end(),
                        [](const StoredObject& object) { return !object.name.ends_with(".json"); });
  for (const StoredObject& object : objects) {
    const auto from = source->open(object.name);
    const auto is_same = [&] {
      if (!dst->exists(object.name)) return false;
      const auto there = dst->open(object.name);
      return there->size() == from->size() && digest_of(*there) == digest_of(*from);
    };
    if (is_same()) {
      told(object.bytes);
      ++report.skipped;
      continue;
    }
    const auto writer = dst->create(object.name);
    copy_checked(*from, {}, *writer, told);
    writer->finish();
    if (!is_same()) throw IoError("{}: gives back other bytes than were put", dst->description(object.name));
    report.bytes += object.bytes;
    ++report.copied;
  }
}

}  // namespace tandem
