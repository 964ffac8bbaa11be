// Any text as a checkpoint's manifest, or as a rank's part of one: refused with one line, or one whose shards
// lie in its files and are the same after it was written and read. What is a JSON object gets the digest that
// it needs to be believed: somebody else may have made a checkpoint.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/json_text.h"
#include "tandem/checkpoint/manifest.h"
#include "tandem/checkpoint/manifest_json.h"
#include "tandem/checkpoint/part.h"

namespace {

using namespace tandem;

void require(bool holds) {
  if (!holds) std::abort();
}

template <typename Use>
void attempt(const Use& use) {
  try {
    use();
  } catch (const DataError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

void check_shard(const Manifest& manifest, const Shard& shard) {
  const auto file = std::find_if(manifest.files.begin(), manifest.files.end(),
                                 [&](const CheckpointFile& each) { return each.name == shard.file; });
  require(file != manifest.files.end() && shard.offset >= 0 && shard.bytes >= 0);
  require(shard.box.elems() >= 0 && !shard.digests.empty());
}

void check_manifest(const std::string& text) {
  const Manifest manifest = parse_manifest(text, "fuzz");
  require(manifest.total_bytes() >= 0 && manifest.num_shards() >= 0 && manifest.meta.step >= 0);
  manifest.weights_only();
  for (const TensorEntry& tensor : manifest.tensors) {
    for (const Shard& shard : tensor.shards) check_shard(manifest, shard);
  }
  const std::string written = render_manifest(manifest);
  require(render_manifest(parse_manifest(written, "written")) == written);
}

void check_part(const std::string& text) {
  std::vector<Part> parts{parse_part(text, "fuzz")};
  require(parts[0].rank >= 0);
  Manifest manifest;
  merge_parts(std::move(parts), manifest);
  require(manifest.total_bytes() >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  attempt([&] { check_manifest(text); });
  attempt([&] { check_part(text); });
  attempt([&] {
    check_json_depth(text, "fuzz");
    const nlohmann::json content = nlohmann::json::parse(text, nullptr, false);
    if (!content.is_object()) return;
    text = seal(content);
  });
  attempt([&] { check_manifest(text); });
  attempt([&] { check_part(text); });
  return 0;
}
