// open_prepared_images: the shards of one split, as index.json lists them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/json_text.h"
#include "tandem/data/images/image_shard.h"
#include "tandem/data/images/image_source.h"
#include "tandem/store/cache/read_ahead.h"

namespace tandem {
namespace {

constexpr const char* kIndex = "index.json";
constexpr int64_t kMostIndexBytes = int64_t{256} << 20;

class PreparedImages final : public ImageSource {
 public:
  PreparedImages(const StoreRef& store, Split split, const nlohmann::json& index)
      : classes_(index.at("classes").get<std::vector<std::string>>()),
        sums_(channel_sums_from(index.at("sums"))) {
    const char* const split_name = split == Split::Train ? "train" : "eval";
    const std::shared_ptr<ReadAhead> through = store->is_far() ? open_cached(store) : nullptr;
    for (const nlohmann::json& entry : index.at("splits").at(split_name)) {
      const std::string file = entry.at("file");
      if (through) {
        shards_.emplace_back(through->open(file));
      } else {
        shards_.emplace_back(*store, file);
      }
      const ImageShard& shard = shards_.back();
      if (shard.num_images() != entry.at("images") || shard.digest() != entry.at("digest")) {
        throw DataError("{}: does not agree with {}; run tandem prepare again", shard.origin(),
                        store->description(kIndex));
      }
      check_labels(shard);
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + shard.num_images());
      digests_ += shard.digest();
    }
    if (ends_.empty() || ends_.back() == 0) {
      throw DataError("{}: its {} split is empty; prepare it with another eval fraction",
                      store->description(""), split_name);
    }
  }

  int64_t num_images() const override { return ends_.back(); }
  const std::vector<std::string>& classes() const override { return classes_; }
  int32_t label(int64_t index) const override {
    const auto [shard, at] = place_of(index);
    return shard.label(at);
  }
  std::string name(int64_t index) const override {
    const auto [shard, at] = place_of(index);
    return fmt::format("{}: image {}", shard.origin(), at);
  }
  StoredImage read(int64_t index) const override {
    const auto [shard, at] = place_of(index);
    return shard.read(at);
  }
  void expect(int64_t index) const override {
    const auto [shard, at] = place_of(index);
    shard.expect(at);
  }
  std::string identity() const override { return digest_hex(std::as_bytes(std::span(digests_))); }
  std::optional<ChannelSums> kept_sums() const override { return sums_; }
  bool has_own_split() const override { return true; }

 private:
  struct Place {
    const ImageShard& shard;
    int64_t at;
  };
  Place place_of(int64_t index) const {
    TANDEM_CHECK(index >= 0 && index < num_images());
    const auto shard =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
    return {shards_[shard], index - (shard == 0 ? 0 : ends_[shard - 1])};
  }
  void check_labels(const ImageShard& shard) const {
    for (int64_t i = 0; i < shard.num_images(); ++i) {
      if (shard.label(i) >= 0 && shard.label(i) < static_cast<int32_t>(classes_.size())) continue;
      throw DataError("{}: image {}: label {}, expected one below {}; run tandem prepare again",
                      shard.origin(), i, shard.label(i), classes_.size());
    }
  }

  std::vector<std::string> classes_;
  ChannelSums sums_;
  std::vector<ImageShard> shards_;
  std::vector<int64_t> ends_;
  std::string digests_;
};

}  // namespace

std::unique_ptr<ImageSource> open_prepared_images(const std::string& place, Split split) {
  const StoreRef store(open_store(place));
  const std::string origin = store->description(kIndex);
  if (!store->exists(kIndex))
    throw DataError("{}: not a prepared set: expected an index.json, as tandem prepare --images writes it",
                    store->description(""));
  try {
    const std::string text = read_text(*store->open(kIndex), kMostIndexBytes);
    check_json_depth(text, origin);
    const nlohmann::json index = nlohmann::json::parse(text);
    if (index.at("format") == "tandem-tokens")
      throw ConfigError("{}: holds text, but the model takes images; use builtin:shapes or a set of images",
                        store->description(""));
    if (index.at("format") != "tandem-images" || index.at("version") != 1)
      throw DataError("{}: expected format tandem-images version 1; run tandem prepare again", origin);
    return std::make_unique<PreparedImages>(store, split, index);
  } catch (const nlohmann::json::exception& error) {
    throw DataError("{}: damaged index: {}; run tandem prepare again", origin, error.what());
  }
}

}  // namespace tandem
